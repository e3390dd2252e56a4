"""What is known about a pipe, as records: the slot, the stored offset, what came through."""

from dataclasses import dataclass
from datetime import datetime

from waybill.kernel.clock import format_instant

__all__ = ["PipeFacts", "SlotFacts", "TaskFacts", "parse_lsn"]


def parse_lsn(text: str) -> int:
    """Return a log position as a number: `16/B374D848`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """One replication slot as PostgreSQL reports it. Sizes in bytes."""

    name: str
    database: str
    is_active: bool
    #: reserved, extended, unreserved or lost; None while it was never used.
    wal_status: str | None
    #: Why it can never be used again; None while it can.
    invalidation_reason: str | None
    confirmed_lsn: int | None
    #: WAL between what is confirmed and now: work behind.
    behind_bytes: int | None
    #: WAL the server keeps for this slot: disk held.
    retained_bytes: int | None
    #: WAL that may still be written before the slot is lost; None without a limit.
    safe_bytes: int | None
    inactive_since: datetime | None

    @property
    def is_lost(self) -> bool:
        """Whether rows are gone from the log before they were read."""
        return self.wal_status == "lost" or self.invalidation_reason is not None

    def document(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "active": self.is_active,
            "wal_status": self.wal_status,
            "invalidation_reason": self.invalidation_reason,
            "behind_bytes": self.behind_bytes,
            "retained_bytes": self.retained_bytes,
            "safe_bytes": self.safe_bytes,
            "inactive_since": format_instant(self.inactive_since) if self.inactive_since else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """One task as Connect reports it."""

    id: int
    state: str
    trace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeFacts:
    """Everything that was found out about one connector at one moment."""

    connector: str
    #: As Connect says; None when it has no such connector.
    state: str | None
    trace: str | None
    tasks: tuple[TaskFacts, ...]
    #: False when no database was asked: the slot is then unknown, not missing.
    slot_known: bool
    slot: SlotFacts | None
    #: Seconds since the last heartbeat reached its topic; None when there never was one.
    heartbeat_age_s: float | None
    #: Topics the outbox routes to that the brokers do not have.
    missing_topics: tuple[str, ...] = ()
