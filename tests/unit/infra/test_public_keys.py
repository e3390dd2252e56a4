"""Public keys at `/.well-known/waybill/keys`: what is given out, to whom, for how long."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from waybill.crypto.keyring import ensure_signing, rotate_signing
from waybill.crypto.keys import jwks_path, read_keys, signing_path
from waybill.infra.public_keys import KEPT_FOR, WELL_KNOWN, PublicKeys
from waybill.kernel.ids import Tenant
from waybill.testing.clocks import MovableClock

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ACME, OTHER = Tenant("acme"), Tenant("other")
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(NOW)


def ids(keys: PublicKeys, path: str = f"{WELL_KNOWN}/acme") -> list[str]:
    found = keys.answer(path, None)
    assert found is not None
    assert found.status == 200, found.body
    return [key["kid"] for key in json.loads(found.body)["keys"]]


@pytest.mark.requirement("GW-19")
def test_the_next_key_is_given_out_before_it_signs_and_a_retired_one_after(tmp_path: Path, clock: MovableClock):
    ensure_signing(tmp_path, ACME, NOW)
    keys = PublicKeys(tmp_path, clock)
    (first,) = ids(keys)

    fresh = rotate_signing(tmp_path, ACME, NOW, overlap=2 * HOUR, starts_in=HOUR)

    old, new = read_keys(signing_path(tmp_path, ACME))
    assert ids(keys) == [first, fresh.key_id]
    assert [key.is_valid_at(NOW) for key in (old, new)] == [True, False]
    assert [key.is_valid_at(NOW + 2 * HOUR) for key in (old, new)] == [True, True]
    assert [key.is_valid_at(NOW + 3 * HOUR) for key in (old, new)] == [False, True]
    clock.advance(KEPT_FOR + 2 * HOUR)
    assert ids(keys) == [first, fresh.key_id]  # just retired
    clock.advance(2 * HOUR)
    assert ids(keys) == [fresh.key_id]


def test_one_answer_holds_one_tenant(tmp_path: Path, clock: MovableClock):
    ensure_signing(tmp_path, ACME, NOW)
    keys = PublicKeys(tmp_path, clock)
    alone = ids(keys, WELL_KNOWN)
    ensure_signing(tmp_path, OTHER, NOW)

    both = keys.answer(WELL_KNOWN, None)

    assert both is not None
    assert both.status == 404
    assert alone == ids(keys)
    assert set(ids(keys)).isdisjoint(ids(keys, f"{WELL_KNOWN}/other"))
    assert ids(PublicKeys(tmp_path, clock, only="acme"), WELL_KNOWN) == alone


def test_nothing_private_is_given_out(tmp_path: Path, clock: MovableClock):
    ensure_signing(tmp_path, ACME, NOW)
    path = jwks_path(tmp_path, ACME)
    document = json.loads(path.read_text())
    document["keys"][0]["d"] = "a-private-half"
    path.write_text(json.dumps(document))

    found = PublicKeys(tmp_path, clock).answer(f"{WELL_KNOWN}/acme", None)

    assert found is not None
    assert b"a-private-half" not in found.body
    assert json.loads(found.body)["keys"][0]["x"] == document["keys"][0]["x"]


@pytest.mark.parametrize("name", ["nobody", "../acme", "acme/", "ACME", "acme/signing.json", "%2e%2e"])
def test_what_is_no_tenant_here_is_not_found(tmp_path: Path, clock: MovableClock, name: str):
    ensure_signing(tmp_path, ACME, NOW)

    found = PublicKeys(tmp_path / "acme" / "..", clock, only="acme").answer(f"{WELL_KNOWN}/{name}", None)

    assert found is not None
    assert found.status == 404


def test_an_answer_may_be_kept_and_asked_after(tmp_path: Path, clock: MovableClock):
    ensure_signing(tmp_path, ACME, NOW)
    keys = PublicKeys(tmp_path, clock)
    first = keys.answer(WELL_KNOWN, None)
    assert first is not None
    headers = dict(first.headers)

    again = keys.answer(WELL_KNOWN, f'"other", W/{headers["etag"]}')
    rotate_signing(tmp_path, ACME, NOW)
    changed = keys.answer(WELL_KNOWN, headers["etag"])

    assert headers["cache-control"] == "public, max-age=300"
    assert again is not None
    assert (again.status, again.body) == (304, b"")
    assert changed is not None
    assert changed.status == 200


def test_other_paths_are_others(tmp_path: Path, clock: MovableClock):
    assert PublicKeys(tmp_path, clock).answer("/metrics", None) is None
    assert PublicKeys(tmp_path, clock).answer(f"{WELL_KNOWN}-old", None) is None
