"""What lets somebody in, and what is said of who is not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.access.authenticator import MEMORY_S, KeyAuthenticator
from waybill.access.core.keys import (
    KeyRecord,
    Presented,
    Principal,
    Refusal,
    Scope,
    check_name,
    digest_of,
    judge,
    key_text,
    read_credentials,
    read_scopes,
)
from waybill.access.core.lifetimes import shortened
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant
from waybill.testing.clocks import MovableClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = key_text(b"\x01" * 8, b"\x02" * 32)
OTHER = key_text(b"\x01" * 8, b"\x03" * 32)


def record(**changes: Any) -> KeyRecord:
    values: dict[str, Any] = {
        "key_id": "01" * 8,
        "tenant": Tenant("acme"),
        "principal": "shop",
        "scopes": frozenset({Scope.COMMANDS_SUBMIT}),
        "digest": digest_of(TEXT),
        "created_at": NOW - timedelta(days=1),
        "created_by": "ann",
    }
    return KeyRecord(**{**values, **changes})


def presented(text: str = TEXT) -> Presented:
    found = read_credentials(f"Bearer {text}")
    assert isinstance(found, Presented)
    return found


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        (None, Refusal.MISSING),
        ("", Refusal.MISSING),
        ("Basic YTpi", Refusal.MALFORMED),
        ("Bearer ", Refusal.MALFORMED),
        (f"Bearer {TEXT}x", Refusal.MALFORMED),
        (f"Bearer {TEXT} {TEXT}", Refusal.MALFORMED),
        (f"Bearer {TEXT.upper()}", Refusal.MALFORMED),
    ],
)
def test_what_is_no_key_is_refused(header: str | None, refusal: Refusal):
    assert read_credentials(header) is refusal


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_whatever_comes_is_a_key_or_a_refusal(header: str):
    assert isinstance(read_credentials(header), Presented | Refusal)


@pytest.mark.parametrize(
    ("known", "came", "refusal"),
    [
        (None, TEXT, Refusal.UNKNOWN),
        # the right id, another secret
        (record(), OTHER, Refusal.UNKNOWN),
        (record(expires_at=NOW), TEXT, Refusal.EXPIRED),
        (record(revoked_at=NOW - timedelta(hours=1)), TEXT, Refusal.REVOKED),
        # who does not know the secret does not learn that it was revoked
        (record(revoked_at=NOW - timedelta(hours=1)), OTHER, Refusal.UNKNOWN),
    ],
)
def test_who_is_not_let_in(known: KeyRecord | None, came: str, refusal: Refusal):
    assert judge(presented(came), known, NOW) is refusal


def test_a_key_lets_its_principal_in_until_it_expires():
    found = judge(presented(), record(expires_at=NOW + timedelta(seconds=1)), NOW)

    scopes = frozenset({Scope.COMMANDS_SUBMIT})
    assert found == Principal(tenant=Tenant("acme"), name="shop", scopes=scopes, key_id="01" * 8)


def test_nothing_that_is_printed_holds_the_secret():
    secret = TEXT.rpartition("_")[2]

    printed = repr((record(), presented(), judge(presented(), record(), NOW)))

    assert secret not in printed
    assert str(digest_of(TEXT)) not in printed


def test_a_rotation_only_shortens_lives():
    records = [
        record(key_id="a"),
        record(key_id="b", expires_at=NOW + timedelta(minutes=5)),
        record(key_id="c", expires_at=NOW + timedelta(days=9)),
        record(key_id="d", revoked_at=NOW),
    ]

    ends = shortened(records, NOW, timedelta(hours=1))

    assert ends == {"a": NOW + timedelta(hours=1), "c": NOW + timedelta(hours=1)}


@pytest.mark.parametrize("words", [[], ["commands:submit", "everything"]])
def test_scopes_are_named(words: list[str]):
    with pytest.raises(ConfigError, match="commands:submit"):
        read_scopes(words)


@pytest.mark.parametrize("name", ["", "Shop", "a b", "x" * 31, "-shop"])
def test_a_principal_has_a_plain_name(name: str):
    with pytest.raises(ConfigError, match="principal"):
        check_name(name)


class Records:
    """The table of keys, and how often it was asked."""

    def __init__(self, found: KeyRecord | None) -> None:
        self.found, self.asked = found, 0

    async def find(self, key_id: str) -> KeyRecord | None:
        self.asked += 1
        return self.found


async def test_a_revoked_key_lets_nobody_in_once_it_is_forgotten(clock: MovableClock):
    table = Records(record())
    door = KeyAuthenticator(table.find, clock)
    assert isinstance(await door.authenticate(f"Bearer {TEXT}"), Principal)
    table.found = record(revoked_at=clock.now())

    clock.advance(MEMORY_S)

    assert await door.authenticate(f"Bearer {TEXT}") is Refusal.REVOKED


async def test_a_busy_principal_costs_one_look_and_guesses_are_not_remembered(clock: MovableClock):
    busy, guessed = Records(record()), Records(None)
    first, second = KeyAuthenticator(busy.find, clock), KeyAuthenticator(guessed.find, clock)

    for _ in range(3):
        await first.authenticate(f"Bearer {TEXT}")
        await second.authenticate(f"Bearer {TEXT}")

    assert (busy.asked, guessed.asked) == (1, 3)


async def test_what_is_remembered_lets_no_other_secret_in(clock: MovableClock):
    door = KeyAuthenticator(Records(record()).find, clock)
    await door.authenticate(f"Bearer {TEXT}")

    assert await door.authenticate(f"Bearer {OTHER}") is Refusal.UNKNOWN


async def test_what_is_refused_is_logged_without_the_key(clock: MovableClock, capsys: pytest.CaptureFixture[str]):
    await KeyAuthenticator(Records(None).find, clock).authenticate(f"Bearer {TEXT}")

    said = "".join(capsys.readouterr())
    assert "access.refused" in said
    assert TEXT.rpartition("_")[2] not in said
