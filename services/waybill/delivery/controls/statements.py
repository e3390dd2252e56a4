"""Controls of destinations in PostgreSQL: only ever added; the newest of a destination is in force."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import psycopg

from waybill.contracts.fabric import FlowLimits
from waybill.delivery.core.controls.standing import Control, Standing

__all__ = ["ControlLog", "ControlStore"]

_COLUMNS: Final = "tenant, destination, standing, rate_per_s, in_flight, decided_at, decided_by, reason"
NEWEST: Final = f"""
SELECT DISTINCT ON (tenant, destination) {_COLUMNS} FROM delivery.destination_control
ORDER BY tenant, destination, number DESC
"""  # noqa: S608 - our own column names
HISTORY: Final = f"""
SELECT {_COLUMNS} FROM delivery.destination_control
WHERE tenant = %(tenant)s AND destination = %(destination)s
ORDER BY number DESC LIMIT %(limit)s
"""  # noqa: S608 - the same
ADD: Final = f"""
INSERT INTO delivery.destination_control ({_COLUMNS})
VALUES (%(tenant)s, %(destination)s, %(standing)s, %(rate_per_s)s, %(in_flight)s, %(at)s, %(by)s, %(reason)s)
"""  # noqa: S608 - the same
#: One control of a destination after the other.
LOCK: Final = (
    "SELECT pg_advisory_xact_lock(hashtextextended('waybill.control/' || %(tenant)s || '/' || %(destination)s, 0))"
)

Run = Callable[[str, Mapping[str, Any]], Awaitable[list[tuple[Any, ...]]]]


class ControlStore:
    """A worker's side. Both methods may raise TransientError: the same call may be made again."""

    def __init__(self, run: Run) -> None:
        """Take what runs one statement."""
        self._run = run

    async def load(self) -> Sequence[Control]:
        """Return what is in force."""
        return [_control(row) for row in await self._run(NEWEST, {})]

    async def add(self, control: Control) -> None:
        """Add a control."""
        await self._run(ADD, _values(control))


class ControlLog:
    """The operators' side, on a connection of the caller's."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def in_force(self) -> dict[tuple[str, str], Control]:
        """Return what is in force, by tenant and destination."""
        found = [_control(row) for row in self._connection.execute(NEWEST.encode())]
        return {(control.tenant, control.destination): control for control in found}

    def history(self, tenant: str, destination: str, limit: int) -> list[Control]:
        """Return controls about one destination, newest first."""
        values = {"tenant": tenant, "destination": destination, "limit": limit}
        return [_control(row) for row in self._connection.execute(HISTORY.encode(), values)]

    def decide(
        self, tenant: str, destination: str, change: Callable[[Control | None], Control | None]
    ) -> Control | None:
        """Add what a change makes of what is in force; return it, or None when it is in force already."""
        with self._connection.transaction():
            self._connection.execute(LOCK, {"tenant": tenant, "destination": destination})
            before = self.history(tenant, destination, 1)
            after = change(before[0] if before else None)
            if after is not None:
                self._connection.execute(ADD.encode(), _values(after))
        return after


def _control(row: Sequence[Any]) -> Control:
    tenant, destination, standing, rate, in_flight, at, by, reason = row
    return Control(
        tenant=tenant,
        destination=destination,
        standing=Standing(standing),
        limits=FlowLimits(rate_per_s=rate, in_flight=in_flight),
        at=at,
        by=by,
        reason=reason,
    )


def _values(control: Control) -> dict[str, Any]:
    return {
        "tenant": control.tenant,
        "destination": control.destination,
        "standing": control.standing.value,
        "rate_per_s": control.limits.rate_per_s,
        "in_flight": control.limits.in_flight,
        "at": control.at,
        "by": control.by,
        "reason": control.reason,
    }
