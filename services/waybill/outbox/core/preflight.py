"""What `waybill outbox check` concludes from the facts of one producer database: each finding with what to do.

Pure: facts in, findings out. A finding fails when commands would be lost, stuck or forgeable; it warns when they
will be, unless somebody acts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import Final

__all__ = ["Facts", "Finding", "RoleFacts", "Severity", "judge"]

OLDEST_VERSION: Final = 140_000
MAX_SKEW_S: Final = 2.0
#: Partitions for this many days ahead, or housekeeping is late.
DAYS_AHEAD: Final = 2
MEBIBYTE: Final = 1024 * 1024


class Severity(StrEnum):
    """How bad a finding is."""

    #: As it should be.
    OK = "ok"
    #: It works today; act before it does not.
    WARN = "warn"
    #: Commands would be lost, stuck or forged.
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at."""

    check: str
    severity: Severity
    found: str
    #: What to do; empty when nothing is.
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFacts:
    """What one role is and may do with the outbox."""

    name: str
    exists: bool = True
    login: bool = True
    replication: bool = False
    #: Superuser, or a member of the outbox's owner.
    is_owner: bool = False
    may_emit: bool = False
    may_read: bool = False
    #: Rights on the outbox, a partition or any other table there that it must not have: `INSERT on outbox`.
    excess: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was read from the database, at one moment."""

    schema: str
    server_version_num: int
    encoding: str
    wal_level: str
    slots_free: int
    senders_free: int
    #: Megabytes; -1 = unlimited.
    max_slot_wal_keep_size_mb: int
    #: Milliseconds; 0 = off.
    idle_in_transaction_timeout_ms: int
    #: Seconds of the oldest open transaction.
    oldest_transaction_s: float
    #: The server process differs from the one the connection was opened with: something stands between.
    pooled: bool
    #: Database clock minus ours, and half the round trip as its uncertainty.
    skew_s: float
    skew_error_s: float
    migrations_applied: int
    migrations_known: int
    app: RoleFacts
    relay: RoleFacts
    today: date
    #: First days without a partition, from today on, in the days looked at.
    days_missing: tuple[date, ...]
    default_rows: bool
    #: Publication as text, or None: `insert via root of waybill.outbox`.
    publication: str | None


def judge(facts: Facts) -> list[Finding]:
    """Turn facts into findings, worst advice beside each, in the order in which one would repair them."""
    findings = [*_server(facts), *_slots(facts), *_connection(facts), *_schema(facts)]
    if facts.migrations_applied:
        findings += [*_partitions(facts), _publication(facts), *_app(facts), *_relay(facts)]
    return findings


def _of(check: str, good: bool, found: str, advice: str, bad: Severity = Severity.FAIL) -> Finding:
    return Finding(check=check, severity=Severity.OK if good else bad, found=found, advice="" if good else advice)


def _server(facts: Facts) -> Iterator[Finding]:
    number = facts.server_version_num
    yield _of(
        "server version", number >= OLDEST_VERSION, f"PostgreSQL {number // 10_000}", "use PostgreSQL 14 or newer"
    )
    yield _of("encoding", facts.encoding == "UTF8", facts.encoding, "use a database created with ENCODING 'UTF8'")
    yield _of(
        "wal_level",
        facts.wal_level == "logical",
        facts.wal_level,
        "ALTER SYSTEM SET wal_level = 'logical', then restart the server: without it nothing leaves the outbox",
    )


def _slots(facts: Facts) -> Iterator[Finding]:
    yield _of(
        "replication slots free", facts.slots_free > 0, str(facts.slots_free), "raise max_replication_slots and restart"
    )
    yield _of("WAL senders free", facts.senders_free > 0, str(facts.senders_free), "raise max_wal_senders and restart")
    keep = facts.max_slot_wal_keep_size_mb
    yield _of(
        "max_slot_wal_keep_size",
        keep > 0,
        "unlimited" if keep < 0 else f"{keep} MB",
        "set it to some hours of WAL: with no limit a stopped relay fills the disk, and a slot that outgrows the limit "
        "is repaired by `waybill relay recover`",
        Severity.WARN,
    )


def _connection(facts: Facts) -> Iterator[Finding]:
    idle = facts.idle_in_transaction_timeout_ms
    yield _of(
        "idle_in_transaction_session_timeout",
        0 < idle <= 600_000,
        "off" if idle == 0 else f"{idle / 1000:g} s",
        "set it to at most 10 min: a session left open in a transaction holds the WAL, its counters and old partitions",
        Severity.WARN,
    )
    yield _of(
        "oldest transaction",
        facts.oldest_transaction_s < 600,
        f"{facts.oldest_transaction_s:.0f} s",
        "end it: it holds back WAL, vacuum and housekeeping (pg_stat_activity, xact_start)",
        Severity.WARN,
    )
    yield _of(
        "pooler",
        not facts.pooled,
        "between us and the server" if facts.pooled else "none seen",
        "producers may use a pooler in transaction mode, the outbox keeps nothing in the session; "
        "the relay must reach the server directly, since replication passes through no pooler",
        Severity.WARN,
    )
    yield _of(
        "clock",
        abs(facts.skew_s) - facts.skew_error_s <= MAX_SKEW_S,
        f"{facts.skew_s:+.2f} s (± {facts.skew_error_s:.2f} s)",
        "synchronise both clocks (NTP): expiry is fixed by the database's clock and judged by the workers'",
    )


def _schema(facts: Facts) -> Iterator[Finding]:
    applied, known = facts.migrations_applied, facts.migrations_known
    yield _of(
        "schema",
        applied == known,
        f"{facts.schema}: {applied} of {known} migrations",
        f"run `waybill outbox install --schema {facts.schema}`, or apply what `waybill outbox sql` prints",
    )


def _partitions(facts: Facts) -> Iterator[Finding]:
    soon = [day for day in facts.days_missing if day <= facts.today + timedelta(days=1)]
    missing = ", ".join(day.isoformat() for day in facts.days_missing)
    advice = "run `waybill outbox housekeep`, at least daily"
    if soon:
        yield Finding(check="partitions", severity=Severity.FAIL, found=f"none for {missing}", advice=advice)
    else:
        yield _of(
            "partitions",
            not facts.days_missing,
            f"none for {missing}" if missing else f"today and {DAYS_AHEAD} days ahead",
            advice,
            Severity.WARN,
        )
    yield _of(
        "default partition",
        not facts.default_rows,
        "holds rows" if facts.default_rows else "empty",
        "housekeeping was late: run `waybill outbox housekeep`, which gives these rows a partition",
    )


def _publication(facts: Facts) -> Finding:
    expected = f"insert via root of {facts.schema}.outbox"
    return _of(
        "publication",
        facts.publication == expected,
        facts.publication or "missing",
        f"DROP PUBLICATION IF EXISTS {facts.schema}_outbox; CREATE PUBLICATION {facts.schema}_outbox FOR TABLE "
        f"{facts.schema}.outbox WITH (publish = 'insert', publish_via_partition_root = true);",
    )


def _app(facts: Facts) -> Iterator[Finding]:
    app, schema = facts.app, facts.schema
    if not app.exists:
        yield Finding(
            check="application role",
            severity=Severity.FAIL,
            found=f"{app.name} does not exist",
            advice=f"run `waybill outbox install --schema {schema} --app-role {app.name}`",
        )
        return
    yield _of(
        "application role",
        not app.is_owner and not app.excess,
        f"{app.name}: "
        + ("owns the outbox or is a superuser" if app.is_owner else ", ".join(app.excess) or "no more than it needs"),
        "let the application log in as a role that only may call emit: what it can write itself, it can forge",
    )
    yield _of(
        "application may emit",
        app.may_emit,
        f"{app.name}: {'yes' if app.may_emit else 'no'}",
        f"GRANT USAGE ON SCHEMA {schema} and EXECUTE on its emit functions TO {app.name} (migration 0005)",
    )


def _relay(facts: Facts) -> Iterator[Finding]:
    relay, schema = facts.relay, facts.schema
    if not relay.exists:
        yield Finding(
            check="relay role",
            severity=Severity.FAIL,
            found=f"{relay.name} does not exist",
            advice=f"run `waybill outbox install --schema {schema} --relay-role {relay.name}`",
        )
        return
    yield _of(
        "relay role",
        relay.login and relay.replication,
        f"{relay.name}: login {'yes' if relay.login else 'no'}, replication {'yes' if relay.replication else 'no'}",
        f"ALTER ROLE {relay.name} LOGIN REPLICATION PASSWORD '…' as a superuser",
    )
    yield _of(
        "relay may read",
        relay.may_read,
        f"{relay.name}: {'yes' if relay.may_read else 'no'}",
        f"GRANT USAGE ON SCHEMA {schema} TO {relay.name}; GRANT SELECT ON {schema}.outbox TO {relay.name};",
    )
    yield _of(
        "relay reads only",
        not relay.is_owner and not relay.excess,
        f"{relay.name}: "
        + (
            "owns the outbox or is a superuser"
            if relay.is_owner
            else ", ".join(relay.excess) or "no more than it needs"
        ),
        "revoke the rest: the relay reads the outbox and nothing else",
    )
