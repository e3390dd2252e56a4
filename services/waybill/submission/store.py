"""Submissions in PostgreSQL, beside the outbox they went to.

Every statement runs in the transaction of the caller, so that a submission is remembered if and only if its commands
are in the outbox.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from waybill.infra.postgres import identifier
from waybill.kernel.clock import format_instant
from waybill.kernel.ids import Tenant
from waybill.outbox import Emitted
from waybill.submission.core.resubmission import KEPT, SubmissionId

__all__ = ["PACKAGE", "Submission", "Submissions", "schema_beside", "told"]

PACKAGE: Final = "waybill.submission.migrations"
_COLUMNS: Final = (
    "submission_id, tenant, principal, digest, accepted_at, commands, resubmissions, last_resubmitted_at, "
    "ambiguous_at, settled_at, settled_by, settled_why"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What was accepted at once under one key."""

    submission_id: SubmissionId
    tenant: Tenant
    principal: str
    digest: bytes
    accepted_at: datetime
    #: Per command what the outbox fixed, as JSON.
    commands: Sequence[Any]
    resubmissions: int = 0
    last_resubmitted_at: datetime | None = None
    #: Since when it waits for a person.
    ambiguous_at: datetime | None = None
    settled_at: datetime | None = None
    settled_by: str | None = None
    settled_why: str | None = None


def schema_beside(outbox_schema: str) -> str:
    """Return the schema that remembers what was submitted to an outbox."""
    return identifier(f"{outbox_schema}_submission")


def told(emitted: Emitted) -> dict[str, Any]:
    """Return what a submission remembers of a command, and tells."""
    return {
        "commandId": str(emitted.command_id),
        "aggregate": emitted.aggregate,
        "issuedAt": format_instant(emitted.issued_at),
        "expiresAt": format_instant(emitted.expires_at),
        "deliveries": [
            {"deliveryId": str(delivery), "destination": name, "sequence": emitted.sequences[name]}
            for name, delivery in sorted(emitted.delivery_ids.items())
        ],
    }


class Submissions:
    """The table beside one outbox; names are checked once, here."""

    def __init__(self, outbox_schema: str) -> None:
        table = f"{schema_beside(outbox_schema)}.submission"
        self._find = f"SELECT {_COLUMNS} FROM {table} WHERE submission_id = %s AND tenant = %s".encode()  # noqa: S608 - a checked identifier
        self._add = (
            f"INSERT INTO {table} (submission_id, tenant, principal, idempotency_key, digest, accepted_at, commands) "  # noqa: S608 - the same
            "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        ).encode()
        self._again = (
            f"UPDATE {table} SET resubmissions = resubmissions + 1, last_resubmitted_at = %(now)s, "  # noqa: S608 - the same
            "ambiguous_at = CASE WHEN %(allowed)s THEN ambiguous_at ELSE coalesce(ambiguous_at, %(now)s) END "
            f"WHERE submission_id = %(id)s RETURNING {_COLUMNS}"
        ).encode()
        self._ambiguous = (
            f"SELECT {_COLUMNS} FROM {table} WHERE ambiguous_at IS NOT NULL AND settled_at IS NULL "  # noqa: S608 - the same
            "AND tenant = %s AND (%s::text IS NULL OR principal = %s) ORDER BY ambiguous_at, submission_id LIMIT %s"
        ).encode()
        self._settle = (
            f"UPDATE {table} SET settled_at = %s, settled_by = %s, settled_why = %s "  # noqa: S608 - the same
            "WHERE submission_id = %s AND tenant = %s AND ambiguous_at IS NOT NULL AND settled_at IS NULL"
        ).encode()
        self._forget = (
            f"DELETE FROM {table} WHERE accepted_at < %s AND (ambiguous_at IS NULL OR settled_at IS NOT NULL)"  # noqa: S608 - the same
        ).encode()

    async def find(self, connection: psycopg.AsyncConnection[Any], tenant: Tenant, identity: UUID) -> Submission | None:
        """Return a tenant's submission by id."""
        return await self._one(connection, self._find, (identity, tenant))

    async def add(self, connection: psycopg.AsyncConnection[Any], submission: Submission, key: str) -> bool:
        """Remember a submission; False where one of this id is remembered already, by another transaction just now."""
        values = (
            submission.submission_id,
            submission.tenant,
            submission.principal,
            key,
            submission.digest,
            submission.accepted_at,
            Jsonb(submission.commands),
        )
        return (await connection.execute(self._add, values)).rowcount == 1

    async def resubmitted(
        self, connection: psycopg.AsyncConnection[Any], identity: UUID, now: datetime, *, is_allowed: bool
    ) -> Submission | None:
        """Note a resubmission; one that is not allowed makes the submission wait for a person."""
        return await self._one(connection, self._again, {"id": identity, "now": now, "allowed": is_allowed})

    async def ambiguous(
        self, connection: psycopg.AsyncConnection[Any], tenant: Tenant, principal: str | None, limit: int
    ) -> Sequence[Submission]:
        """Return submissions of a tenant, or of one of its principals, that wait for a person, longest first."""
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(self._ambiguous, (tenant, principal, principal, limit))
            return [Submission(**{**row, "digest": bytes(row["digest"])}) for row in await cursor.fetchall()]

    async def settle(
        self,
        connection: psycopg.AsyncConnection[Any],
        tenant: Tenant,
        identity: UUID,
        decided: tuple[datetime, str, str],
    ) -> bool:
        """Note who settled a submission and why; False where none of this id waits."""
        return (await connection.execute(self._settle, (*decided, identity, tenant))).rowcount == 1

    async def forget(self, connection: psycopg.AsyncConnection[Any], now: datetime) -> int:
        """Drop what is older than submissions are remembered and waits for nobody; return how many."""
        return (await connection.execute(self._forget, (now - KEPT,))).rowcount

    async def _one(self, connection: psycopg.AsyncConnection[Any], query: bytes, values: Any) -> Submission | None:
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query, values)
            row = await cursor.fetchone()
        return None if row is None else Submission(**{**row, "digest": bytes(row["digest"])})
