"""Key files: who may read them, what is refused, how they rotate."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waybill.cli.keys import app
from waybill.crypto.keyring import ensure_sealing, ensure_signing, rotate_sealing, rotate_signing
from waybill.crypto.keys import Algorithm, jwks_path, read_keys, sealing_path, signing_path
from waybill.crypto.sealing import load_sealing_keys
from waybill.crypto.signing import load_signer
from waybill.crypto.verifying import Accept, SignatureHeaders, VerificationKeys, verify
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACME = Tenant("acme")


def test_making_keys_again_changes_nothing(tmp_path: Path) -> None:
    assert ensure_signing(tmp_path, ACME, NOW)
    before = signing_path(tmp_path, ACME).read_bytes(), jwks_path(tmp_path, ACME).read_bytes()

    assert not ensure_signing(tmp_path, ACME, NOW + timedelta(days=1))
    assert (signing_path(tmp_path, ACME).read_bytes(), jwks_path(tmp_path, ACME).read_bytes()) == before


def test_ten_at_once_make_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(10) as pool:
        made = list(pool.map(lambda _: ensure_signing(tmp_path, ACME, NOW), range(10)))

    assert sum(made) == 1
    (only,) = read_keys(signing_path(tmp_path, ACME))
    assert only.key_id in jwks_path(tmp_path, ACME).read_text()


def test_a_lost_public_file_comes_back(tmp_path: Path) -> None:
    ensure_signing(tmp_path, ACME, NOW)
    before = jwks_path(tmp_path, ACME).read_bytes()
    jwks_path(tmp_path, ACME).unlink()

    ensure_signing(tmp_path, ACME, NOW)

    assert jwks_path(tmp_path, ACME).read_bytes() == before


def test_private_files_are_their_owners_alone(tmp_path: Path) -> None:
    ensure_signing(tmp_path, ACME, NOW)
    ensure_sealing(tmp_path, ACME, NOW)

    assert signing_path(tmp_path, ACME).stat().st_mode & 0o777 == 0o600
    assert sealing_path(tmp_path, ACME).stat().st_mode & 0o777 == 0o600
    assert jwks_path(tmp_path, ACME).stat().st_mode & 0o777 == 0o644
    assert "whsk_" not in jwks_path(tmp_path, ACME).read_text()

    signing_path(tmp_path, ACME).chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_signer(tmp_path, ACME)


def test_what_the_file_signs_its_public_file_believes(tmp_path: Path) -> None:
    ensure_signing(tmp_path, ACME, NOW)
    rotate_signing(tmp_path, ACME, NOW + timedelta(hours=1))
    keys = VerificationKeys.from_jwks(json.loads(jwks_path(tmp_path, ACME).read_text()))
    for hours, signatures in ((0, 1), (2, 2), (24, 2), (26, 1)):
        now = NOW + timedelta(hours=hours)
        stamp = int(now.timestamp())

        signature = load_signer(tmp_path, ACME).sign("id", stamp, b"body")

        assert signature.count("v1a,") == signatures
        headers = SignatureHeaders(webhook_id="id", timestamp=str(stamp), signature=signature)
        assert isinstance(verify(headers, b"body", keys, now), Accept)


@pytest.mark.requirement("GW-19")
def test_a_running_signer_follows_its_file(tmp_path: Path) -> None:
    ensure_signing(tmp_path, ACME, NOW)
    signer = load_signer(tmp_path, ACME)
    stamp = int(NOW.timestamp()) + 60
    first = signer.sign("id", stamp, b"body")

    rotate_signing(tmp_path, ACME, NOW + timedelta(seconds=60))
    at_once, soon = signer.sign("id", stamp + 4, b"body"), signer.sign("id", stamp + 5, b"body")
    signing_path(tmp_path, ACME).write_text("half a fi")
    later = signer.sign("id", stamp + 60, b"body")
    signing_path(tmp_path, ACME).unlink()
    after_the_overlap = signer.sign("id", stamp + 86_400, b"body")

    assert [text.count("v1a,") for text in (first, at_once, soon, later, after_the_overlap)] == [1, 1, 2, 2, 1]


def test_sealing_keys_rotate_at_once_and_old_ones_stay(tmp_path: Path) -> None:
    ensure_sealing(tmp_path, ACME, NOW)
    (first,) = read_keys(sealing_path(tmp_path, ACME))

    fresh = rotate_sealing(tmp_path, ACME, NOW + timedelta(days=1), Algorithm.CHACHA20_POLY1305)

    keys = load_sealing_keys(tmp_path, ACME)
    assert keys.current(NOW + timedelta(days=1)).key_id == fresh.key_id
    assert keys.get(first.key_id) is not None


def test_without_a_file_the_message_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="waybill keys new --tenant acme"):
        load_signer(tmp_path, ACME)
    with pytest.raises(ConfigError, match="waybill keys seal-new --tenant acme"):
        load_sealing_keys(tmp_path, ACME)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-20],
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace("whsk_", "whpk_"),
        lambda text: text.replace("whsk_", "whsk_A"),
        lambda text: text.replace("ed25519", "rot13"),
        lambda text: text.replace("not_before", "not_bevor"),
        lambda text: text[:0] + "[]",
    ],
)
def test_a_damaged_file_is_refused_without_showing_it(tmp_path: Path, change: object) -> None:
    assert callable(change)
    ensure_signing(tmp_path, ACME, NOW)
    path = signing_path(tmp_path, ACME)
    secret = json.loads(path.read_text())["keys"][0]["secret"]
    path.write_text(change(path.read_text()))

    with pytest.raises(ConfigError) as refusal:
        read_keys(path)

    assert str(path) in str(refusal.value)
    assert secret[5:15] not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_the_command_line_makes_lists_and_rotates_without_a_secret(tmp_path: Path) -> None:
    place = ["--tenant", "acme", "--keys-dir", str(tmp_path), "--json"]
    run = CliRunner()

    made = [json.loads(run.invoke(app, ["new", *place]).stdout)["changed"] for _ in range(2)]
    run.invoke(app, ["seal-new", *place])
    rotated = json.loads(run.invoke(app, ["rotate", *place, "--overlap-hours", "2"]).stdout)
    listed = run.invoke(app, ["list", *place])
    public = json.loads(run.invoke(app, ["jwks", *place]).stdout)

    assert made == [True, False]
    assert [key["state"] for key in rotated["keys"]] == ["retiring", "active"]
    assert [key["use"] for key in json.loads(listed.stdout)["keys"]] == ["sign", "sign", "seal"]
    assert public == json.loads(jwks_path(tmp_path, ACME).read_text())
    for key in (*read_keys(signing_path(tmp_path, ACME)), *read_keys(sealing_path(tmp_path, ACME))):
        for text in (listed.output, json.dumps(rotated), json.dumps(public)):
            assert key.secret.reveal().hex() not in text
            assert "whsk_" not in text
            assert "wbsk_" not in text


def test_the_command_line_refuses_names_that_are_no_names(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["new", "--tenant", "../etc", "--keys-dir", str(tmp_path)])

    assert isinstance(result.exception, ConfigError)
    assert list(tmp_path.iterdir()) == []
