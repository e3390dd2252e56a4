"""Baselines in the control database: only ever added, so that what was approved and what was sent stay what they were."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from waybill.delivery.core.controls.standing import Decider
from waybill.kernel.errors import ConfigError, RefusedError

__all__ = ["BaselineLog", "Proposal", "approved_parts"]

PROPOSE: Final = """
INSERT INTO delivery.baseline (baseline_id, tenant, destination, nonce, digest, parts, lanes, config_version, proposed_by,
    proposed_at, reason, expires_at)
VALUES (%(baseline_id)s, %(tenant)s, %(destination)s, %(nonce)s, %(digest)s, %(parts)s, %(lanes)s, %(config_version)s,
    %(by)s, %(at)s, %(reason)s, %(expires_at)s)
"""
ADD_PART: Final = "INSERT INTO delivery.baseline_part (baseline_id, part, data) VALUES (%s, %s, %s)"
#: What the database holds to the proposal: its digest, and that somebody else approves.
APPROVE: Final = """
INSERT INTO delivery.baseline_approval (baseline_id, proposed_by, digest, approved_by, approved_at, reason)
VALUES (%(baseline_id)s, %(proposed_by)s, %(digest)s, %(by)s, %(at)s, %(reason)s)
ON CONFLICT (baseline_id) DO NOTHING
"""
SENT: Final = """
INSERT INTO delivery.baseline_sending (baseline_id, part, sent_by, sent_at, outcome, detail)
VALUES (%(baseline_id)s, %(part)s, %(by)s, %(at)s, %(outcome)s, %(detail)s)
"""
LIST: Final = """
SELECT b.baseline_id, b.tenant, b.destination, b.nonce, b.digest, b.parts, b.lanes, b.config_version, b.proposed_by,
    b.proposed_at, b.reason, b.expires_at, a.approved_by, a.approved_at, a.reason AS approval_reason,
    s.outcome AS last_outcome, s.detail AS last_detail, s.sent_by AS last_sent_by, s.sent_at AS last_sent_at
FROM delivery.baseline AS b
LEFT JOIN delivery.baseline_approval AS a USING (baseline_id)
LEFT JOIN LATERAL (
    SELECT * FROM delivery.baseline_sending AS s WHERE s.baseline_id = b.baseline_id ORDER BY s.number DESC LIMIT 1
) AS s ON true
WHERE (%(tenant)s::text IS NULL OR b.tenant = %(tenant)s)
    AND (%(destination)s::text IS NULL OR b.destination = %(destination)s)
    AND (%(baseline_id)s::uuid IS NULL OR b.baseline_id = %(baseline_id)s)
ORDER BY b.proposed_at DESC LIMIT %(limit)s
"""
PARTS: Final = "SELECT data FROM delivery.baseline_part WHERE baseline_id = %s ORDER BY part"
SENDINGS: Final = """
SELECT part, sent_by, sent_at, outcome, detail FROM delivery.baseline_sending WHERE baseline_id = %s ORDER BY number
"""
# Whether a number's row, or that of its gap resolution, holds its lane.
HOLDING: Final = """
SELECT aggregate, sequence, bool_or(blocks) FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND (blocks OR state <> 'acknowledged')
GROUP BY aggregate, sequence
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A statement, before anybody approved it."""

    baseline_id: uuid.UUID
    tenant: str
    destination: str
    nonce: str
    digest: str
    #: The data of each part.
    data: tuple[bytes, ...]
    lanes: int
    config_version: int
    expires_at: datetime


class BaselineLog:
    """Over the caller's connection to the control database, in autocommit."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def propose(self, proposal: Proposal, who: Decider) -> None:
        """Write a proposal down."""
        values = {
            "baseline_id": proposal.baseline_id,
            "tenant": proposal.tenant,
            "destination": proposal.destination,
            "nonce": proposal.nonce,
            "digest": proposal.digest,
            "parts": len(proposal.data),
            "lanes": proposal.lanes,
            "config_version": proposal.config_version,
            "expires_at": proposal.expires_at,
        }
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(PROPOSE, {**values, **_who(who)})
            cursor.executemany(
                ADD_PART, [(proposal.baseline_id, part, data.decode()) for part, data in enumerate(proposal.data, 1)]
            )

    def approve(self, proposal: Mapping[str, Any], digest: str, who: Decider) -> None:
        """Approve a proposal, by the digest that the approver saw.

        Raises:
            RefusedError: by the one who proposed it, of another digest, approved before, or its time is over.
        """
        if proposal["expires_at"] <= who.at:
            raise RefusedError("its time is over: propose it anew", rule="baseline_expired")
        values = {"baseline_id": proposal["baseline_id"], "proposed_by": proposal["proposed_by"], "digest": digest}
        try:
            added = self._connection.execute(APPROVE, {**values, **_who(who)}).rowcount
        except psycopg.errors.CheckViolation as error:
            raise RefusedError(
                f"{who.by} proposed it: somebody else has to approve", rule="baseline_approval_by_another"
            ) from error
        except psycopg.errors.ForeignKeyViolation as error:
            raise RefusedError(
                "the digest is not that of this proposal: read it with `waybill baseline show`", rule="baseline_digest"
            ) from error
        if added == 0:
            raise RefusedError("it was approved before", rule="baseline_approved")

    def sent(self, baseline_id: uuid.UUID, part: int, said: tuple[str, str], by: str, at: datetime) -> None:
        """Write down that a part was sent, and what the listener said: outcome and detail.

        Raises:
            RefusedError: nobody approved it.
        """
        outcome, detail = said
        values = {"baseline_id": baseline_id, "part": part, "outcome": outcome, "detail": detail, "by": by, "at": at}
        try:
            self._connection.execute(SENT, values)
        except psycopg.errors.ForeignKeyViolation as error:
            raise RefusedError("nobody approved it", rule="baseline_unapproved") from error

    def list(self, tenant: str | None, destination: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return proposals, newest first, with their approval and what was said last."""
        return self._rows({"tenant": tenant, "destination": destination, "baseline_id": None, "limit": limit})

    def find(self, baseline_id: str) -> Mapping[str, Any]:
        """Return one proposal.

        Raises:
            ConfigError: there is none of this id.
        """
        try:
            wanted = uuid.UUID(baseline_id)
        except ValueError as error:
            raise ConfigError(
                f"{baseline_id!r} is not the id of a baseline: `waybill baseline list` tells them"
            ) from error
        rows = self._rows({"tenant": None, "destination": None, "baseline_id": wanted, "limit": 1})
        if not rows:
            raise ConfigError(f"there is no baseline {wanted}: `waybill baseline list` tells them")
        return rows[0]

    def data(self, baseline_id: uuid.UUID) -> tuple[bytes, ...]:
        """Return the data of each part, in order."""
        return tuple(data.encode() for (data,) in self._connection.execute(PARTS, (baseline_id,)))

    def sendings(self, baseline_id: uuid.UUID) -> Sequence[Mapping[str, Any]]:
        """Return what was sent, oldest first."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(SENDINGS, (baseline_id,)).fetchall()

    def holding(self, tenant: str, destination: str) -> dict[tuple[str, int], bool]:
        """Return by aggregate and number whether its rows hold the lane; only of numbers that have rows."""
        values = {"tenant": tenant, "destination": destination}
        return {(aggregate, number): holds for aggregate, number, holds in self._connection.execute(HOLDING, values)}

    def _rows(self, values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(LIST, values).fetchall()


def approved_parts(log: BaselineLog, proposal: Mapping[str, Any], now: datetime) -> Iterator[tuple[int, bytes]]:
    """Return number and data of each part of a proposal that may be sent.

    Raises:
        RefusedError: nobody approved it, or its time is over.
    """
    if proposal["approved_by"] is None:
        raise RefusedError(
            "nobody approved it: `waybill baseline approve`, by another person", rule="baseline_unapproved"
        )
    if proposal["expires_at"] <= now:
        raise RefusedError("its time is over: propose it anew", rule="baseline_expired")
    return enumerate(log.data(proposal["baseline_id"]), 1)


def _who(who: Decider) -> dict[str, Any]:
    return {"by": who.by, "at": who.at, "reason": who.reason}
