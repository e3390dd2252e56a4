"""Submissions in PostgreSQL, beside the outbox they went to.

A submission is one statement in autocommit, so it is remembered if and only if its commands are in the outbox.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from waybill.infra.postgres import identifier
from waybill.kernel.ids import CommandId, DestinationName, Tenant, delivery_id
from waybill.outbox.sdk import refusals
from waybill.submission.core.resubmission import KEPT, SubmissionId

__all__ = ["PACKAGE", "NewSubmission", "Submission", "Submissions", "schema_beside", "told_command"]

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


def told_command(command: Mapping[str, Any]) -> dict[str, Any]:
    """Return a command of a submission as it is told; its delivery ids follow from what is remembered."""
    if "deliveries" in command:  # remembered by a version that wrote them down
        return dict(command)
    identity = CommandId(UUID(command["commandId"]))
    return {
        **{name: command[name] for name in ("commandId", "aggregate", "issuedAt", "expiresAt")},
        "deliveries": [
            {"deliveryId": str(delivery_id(identity, DestinationName(name))), "destination": name, "sequence": number}
            for name, number in sorted(command["sequences"].items())
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubmission:
    """What somebody submits now, before it is known whether it is new."""

    submission_id: SubmissionId
    tenant: Tenant
    principal: str
    key: str
    digest: bytes
    accepted_at: datetime


class Submissions:
    """The table beside one outbox; names are checked once, here."""

    def __init__(self, outbox_schema: str) -> None:
        table = f"{schema_beside(outbox_schema)}.submission"
        self._find = f"SELECT {_COLUMNS} FROM {table} WHERE submission_id = %s AND tenant = %s".encode()  # noqa: S608 - a checked identifier
        self._submit = (
            f"SELECT {schema_beside(outbox_schema)}.submit(%s, %s, %s, %s, %s, %s, CAST(%s AS jsonb))"
        ).encode()
        self._submit_each = (
            f"SELECT {schema_beside(outbox_schema)}.submit_each(%s, %s, %s, %s, %s, %s, CAST(%s AS jsonb))"
        ).encode()
        self._known = f"SELECT submission_id, digest FROM {table} WHERE submission_id = ANY(%s)".encode()  # noqa: S608 - the same
        self._again = (
            f"SELECT {_COLUMNS} FROM {schema_beside(outbox_schema)}.resubmitted(%(id)s, %(now)s, %(allowed)s)"  # noqa: S608 - the same
        ).encode()
        self._ambiguous = (
            f"SELECT {_COLUMNS} FROM {table} WHERE ambiguous_at IS NOT NULL AND settled_at IS NULL "  # noqa: S608 - the same
            "AND tenant = %s AND (%s::text IS NULL OR principal = %s) ORDER BY ambiguous_at, submission_id LIMIT %s"
        ).encode()
        self._settle = (
            f"UPDATE {table} SET settled_at = %s, settled_by = %s, settled_why = %s "  # noqa: S608 - the same
            "WHERE submission_id = %s AND tenant = %s AND ambiguous_at IS NOT NULL AND settled_at IS NULL"
        ).encode()
        self._forget = (f"SELECT {schema_beside(outbox_schema)}.forget(%s)").encode()

    async def find(self, connection: psycopg.AsyncConnection[Any], tenant: Tenant, identity: UUID) -> Submission | None:
        """Return a tenant's submission by id."""
        return await self._one(connection, self._find, (identity, tenant))

    async def submit(
        self, connection: psycopg.AsyncConnection[Any], new: NewSubmission, commands: str
    ) -> Submission | None:
        """Issue commands and remember them as one submission; None where it was taken before.

        Args:
            connection: in autocommit, so that the statement is the transaction.
            new: what is submitted.
            commands: as `encode_drafts` makes them.

        Raises:
            RefusedError: the outbox refuses a command; nothing was taken.
            psycopg.errors.UniqueViolation: another transaction took it just now.
        """
        values = (new.submission_id, new.tenant, new.principal, new.key, new.digest, new.accepted_at, commands)
        with refusals():
            row = await (await connection.execute(self._submit, values)).fetchone()
        if row is None or row[0] is None:
            return None
        return Submission(
            submission_id=new.submission_id,
            tenant=new.tenant,
            principal=new.principal,
            digest=new.digest,
            accepted_at=new.accepted_at,
            commands=row[0],
        )

    async def submit_each(
        self, connection: psycopg.AsyncConnection[Any], new: Sequence[NewSubmission], commands: str
    ) -> Sequence[str]:
        """Issue and remember submissions of one command each, whatever becomes of the others beside them.

        Args:
            connection: in autocommit, so that the statement is the transaction.
            new: of one tenant and principal, all accepted at one instant; no id twice.
            commands: one for each, in their order, as `encode_commands` makes them.

        Returns:
            For each `taken`, `repeated`, `reused` (known with another digest), or the SQLSTATE of the outbox's rule.

        Raises:
            psycopg.errors.UniqueViolation: another transaction took one of them just now; nothing was taken.
        """
        first = new[0]
        ids, keys, digests = ([getattr(each, name) for each in new] for name in ("submission_id", "key", "digest"))
        values = (first.tenant, first.principal, first.accepted_at, ids, keys, digests, commands)
        row = await (await connection.execute(self._submit_each, values)).fetchone()
        assert row is not None
        return [str(answer) for answer in row[0]]

    async def known(self, connection: psycopg.AsyncConnection[Any], identities: Sequence[UUID]) -> dict[UUID, bytes]:
        """Return which of these submissions are remembered here, with their digests."""
        rows = await (await connection.execute(self._known, (list(identities),))).fetchall()
        return {identity: bytes(digest) for identity, digest in rows}

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
        row = await (await connection.execute(self._forget, (now - KEPT,))).fetchone()
        return int(row[0]) if row is not None else 0

    async def _one(self, connection: psycopg.AsyncConnection[Any], query: bytes, values: Any) -> Submission | None:
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query, values)
            row = await cursor.fetchone()
        return None if row is None else Submission(**{**row, "digest": bytes(row["digest"])})
