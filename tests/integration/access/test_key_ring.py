"""Keys in the control database: told once, rotated with overlap, revoked, and who did it."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from typer.testing import CliRunner

from waybill.access import KeyRing, Minted, Principal, Refusal, Scope
from waybill.access.core.keys import Presented, judge, read_credentials
from waybill.cli.app import root
from waybill.cli.migrate import migrate_all
from waybill.infra.migrate import migrate
from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import Tenant
from waybill.testing.clocks import MovableClock

if TYPE_CHECKING:
    from fixtures.fix_stack import FreshDatabase

pytestmark = pytest.mark.postgres
ACME = Tenant("acme")
SCOPES = frozenset({Scope.COMMANDS_SUBMIT})


@pytest.fixture
def database(fresh_database: "FreshDatabase") -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        migrate(connection, schema="access", package="waybill.access.migrations")
        yield connection


@pytest.fixture
def ring(database: psycopg.Connection[Any], clock: MovableClock) -> KeyRing:
    return KeyRing(database, clock)


def made(ring: KeyRing, **changes: Any) -> Minted:
    return ring.create(ACME, "shop", SCOPES, **{"lifetime": None, "by": "ann", **changes})


def enters(ring: KeyRing, minted: Minted, clock: MovableClock) -> Principal | Refusal:
    presented = read_credentials(f"Bearer {minted.text}")
    assert isinstance(presented, Presented)
    records = {each.key_id: each for each in ring.list()}
    return judge(presented, records.get(presented.key_id), clock.now())


def test_only_the_digest_of_a_key_is_stored(ring: KeyRing, database: psycopg.Connection[Any]):
    minted = made(ring)
    ring.rotate(ACME, "shop", lifetime=None, overlap=timedelta(0), by="ann")

    tables = ("api_key", "event", "migration")
    stored = " ".join(str(row) for t in tables for row in database.execute(f"SELECT * FROM access.{t}".encode()))

    assert minted.record.key_id in stored
    assert minted.text not in stored
    assert minted.text.rpartition("_")[2] not in stored


def test_a_rotated_key_goes_on_for_the_overlap(ring: KeyRing, clock: MovableClock):
    first = made(ring)
    second = ring.rotate(ACME, "shop", lifetime=timedelta(days=9), overlap=timedelta(hours=1), by="bob")

    both = (enters(ring, first, clock), enters(ring, second, clock))
    clock.advance(timedelta(hours=1))

    assert all(isinstance(each, Principal) for each in both)
    assert enters(ring, first, clock) is Refusal.EXPIRED
    assert isinstance(enters(ring, second, clock), Principal)
    assert second.record.scopes == SCOPES


def test_a_revoked_key_lets_nobody_in_and_again_changes_nothing(ring: KeyRing, clock: MovableClock):
    minted = made(ring)

    revoked = [ring.revoke(ACME, "shop", key_id=None, by="bob") for _ in range(2)]

    assert revoked == [[minted.record.key_id], []]
    assert enters(ring, minted, clock) is Refusal.REVOKED


def test_a_second_first_key_is_refused_and_one_after_the_end_is_not(ring: KeyRing, clock: MovableClock):
    made(ring, lifetime=timedelta(days=1))
    with pytest.raises(RefusedError, match="rotate"):
        made(ring)

    clock.advance(timedelta(days=1))

    assert isinstance(enters(ring, made(ring), clock), Principal)


def test_nothing_is_rotated_where_there_is_nothing(ring: KeyRing):
    with pytest.raises(RefusedError, match="create"):
        ring.rotate(ACME, "shop", lifetime=None, overlap=timedelta(0), by="ann")


def test_who_did_what_and_when_is_history_that_nobody_changes(
    ring: KeyRing, database: psycopg.Connection[Any], clock: MovableClock
):
    made(ring)
    clock.advance(60)
    ring.rotate(ACME, "shop", lifetime=None, overlap=timedelta(0), by="bob")
    ring.revoke(ACME, "shop", key_id=None, by="cid")

    told = [(row["action"], row["by"]) for row in ring.history("acme")]

    assert told == [("revoked", "cid"), ("shortened", "bob"), ("created", "bob"), ("created", "ann")]
    for change in ("DELETE FROM access.event", "UPDATE access.event SET by = 'eve'", "TRUNCATE access.event"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            database.execute(change.encode())


@pytest.mark.parametrize(
    "change",
    [
        "expires_at = 'infinity'",
        "revoked_at = NULL",
        "scopes = ARRAY['deliveries:read']",
        "tenant = 'other'",
        "digest = sha256('x')",
    ],
)
def test_a_key_only_ends(ring: KeyRing, database: psycopg.Connection[Any], change: str):
    made(ring, lifetime=timedelta(days=1))
    ring.revoke(ACME, "shop", key_id=None, by="bob")

    with pytest.raises(psycopg.errors.RestrictViolation):
        database.execute(f"UPDATE access.api_key SET {change}".encode())


def test_of_two_first_keys_at_once_one_is_made(fresh_database: "FreshDatabase", ring: KeyRing, clock: MovableClock):
    def create(_: int) -> bool:
        with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
            try:
                made(KeyRing(connection, clock))
            except RefusedError:
                return False
            return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(create, range(4))) == [False, False, False, True]


def run(*words: str) -> Any:
    done = CliRunner().invoke(root, ["access", *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_command_line_makes_lists_rotates_and_revokes(
    fresh_database: "FreshDatabase", monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WAYBILL_CONTROL_DSN", fresh_database.dsn())
    migrate_all(fresh_database.dsn())
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        connection.execute("INSERT INTO fabric.config_version VALUES (1, now(), 'test', repeat('0', 64))")
        connection.execute("INSERT INTO fabric.object VALUES ('tenant', 'acme', 'acme', 1, '{\"name\": \"acme\"}')")

    made = run("keys", "create", "acme", "shop", "--scope", "commands:submit", "--by", "ann")
    rotated = run("keys", "rotate", "acme", "shop", "--overlap", "1h", "--by", "bob")
    revoked = run("keys", "revoke", "acme", "shop", "--key", made["key_id"], "--by", "cid")
    listed = run("keys", "list", "acme")

    assert made["key"].startswith(f"wbk_{made['key_id']}_")
    assert revoked["revoked"] == [made["key_id"]]
    assert [(key["key_id"], key["state"]) for key in listed["keys"]] == [
        (made["key_id"], "revoked"),
        (rotated["key_id"], "in force"),
    ]
    assert made["key"] not in json.dumps(listed)
    assert [event["by"] for event in run("history", "acme")["events"]] == ["cid", "bob", "bob", "ann"]
