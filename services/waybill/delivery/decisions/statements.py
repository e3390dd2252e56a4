"""The statements of decisions: a verdict is written in the transaction that carries it out, under the epoch.

A verdict that is there stays: a decision that is read again after a crash, or repeated by the relay, is not judged
again, except one that was early.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from waybill.contracts.decision import Decision, DecisionKind
from waybill.contracts.states import State
from waybill.delivery.core.decisions import Judged
from waybill.delivery.store import OWNED, RESULT, Feed, Owned, RowMove, TaskStore
from waybill.kernel.errors import InvariantBroken
from waybill.kernel.ids import Aggregate, DestinationName, Tenant

__all__ = [
    "BEHIND",
    "BLOCKING",
    "CARRY_OUT",
    "EARLY",
    "JUDGED",
    "RECORD",
    "STANDING",
    "UNBLOCK",
    "DecisionStore",
    "Standing",
]

_VERDICT: Final = """
    INSERT INTO delivery.decision AS d (
        tenant, destination, decision_id, partition, aggregate, kind, delivery_id, sequence, version, states,
        decided_by, reason, decided_at, evidence, evidence_digest, verdict, detail, judged_at)
    SELECT %(tenant)s, %(destination)s, %(decision_id)s::uuid, %(partition)s, %(aggregate)s, %(kind)s,
        %(about)s::uuid, %(sequence)s::integer, %(made_on)s::integer, %(states)s::text[], %(decided_by)s, %(reason)s,
        %(decided_at)s::timestamptz, %(evidence)s::text, %(evidence_digest)s::text, %(verdict)s, %(why)s, %(now)s"""
_KEEP: Final = """
    ON CONFLICT (tenant, destination, decision_id) DO UPDATE SET
        partition = EXCLUDED.partition, verdict = EXCLUDED.verdict, detail = EXCLUDED.detail,
        judged_at = EXCLUDED.judged_at
    WHERE d.verdict IN ('open', 'early')
    RETURNING decision_id AS delivery_id"""
_BARE: Final = OWNED.removesuffix(", w AS (")

# A verdict that moves nothing.
RECORD: Final = OWNED + _VERDICT + " FROM o" + _KEEP + RESULT

# A verdict and the move it asks for.
_MOVE: Final = """, m AS (
    UPDATE delivery.open_task AS t SET
        state = %(state)s, version = %(version)s, next_due = NULL, blocks = %(blocks)s, error_code = %(error_code)s,
        detail = %(detail)s, pending_outcome = %(pending_outcome)s, pending_state = %(pending_state)s,
        pending_dead_letter = NULL, pending_envelope = NULL, handed_to = NULL, updated_at = %(now)s
    FROM o
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.delivery_id = %(delivery_id)s::uuid
      AND t.version = %(version)s - 1 AND t.pending_outcome IS NULL
    RETURNING t.delivery_id
), w AS ("""
CARRY_OUT: Final = _BARE + _MOVE + _VERDICT + " FROM m" + _KEEP + RESULT

# A verdict, and a gap resolution that was refused for good holds its lane no longer.
_LET_GO: Final = """, m AS (
    UPDATE delivery.open_task AS t SET blocks = false, updated_at = %(now)s
    FROM o
    WHERE t.tenant = %(tenant)s AND t.destination = %(destination)s AND t.delivery_id = %(delivery_id)s::uuid
      AND t.kind = 'resolution' AND t.blocks
    RETURNING t.delivery_id
), w AS ("""
UNBLOCK: Final = _BARE + _LET_GO + _VERDICT + " FROM m" + _KEEP + RESULT

# Where a delivery stands, by its identity or its number.
STANDING: Final = """
SELECT aggregate, delivery_id::text, sequence, record_offset, state, version, attempt, throttled, next_due,
       expires_at, sent, may_have_acted, record, detail, kind, blocks, pending_outcome IS NOT NULL
FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
  AND aggregate = %(aggregate)s
  AND (delivery_id = %(about)s::uuid OR (%(about)s::uuid IS NULL AND sequence = %(sequence)s AND kind = 'delivery'))
"""

# Whether a decision was judged.
JUDGED: Final = """
SELECT verdict FROM delivery.decision
WHERE tenant = %(tenant)s AND destination = %(destination)s AND decision_id = %(decision_id)s::uuid
"""

# Decisions about what has not come.
EARLY: Final = """
SELECT decision_id, aggregate, kind, delivery_id, sequence, version, states, decided_by, reason, decided_at,
    evidence, evidence_digest
FROM delivery.decision
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
  AND verdict = 'early' AND decided_at > %(since)s
ORDER BY decided_at
"""

# How many deliveries wait behind a number that has none.
BEHIND: Final = """
SELECT count(*)::integer FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
  AND aggregate = %(aggregate)s AND sequence > %(sequence)s AND blocks AND kind = 'delivery'
"""

# How many rows hold a lane.
BLOCKING: Final = """
SELECT count(*)::integer FROM delivery.open_task
WHERE tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s
  AND aggregate = %(aggregate)s AND blocks
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """A delivery's row, as a decision about it is judged."""

    feed: Feed
    blocks: bool
    #: Kafka does not have its last move yet.
    is_unsaid: bool


class DecisionStore:
    """Decisions in the worker's database. Every method may raise TransientError, and FencedError where it writes."""

    def __init__(self, store: TaskStore) -> None:
        """Take what runs one statement."""
        self._store = store

    async def early(self, owned: Owned, since: datetime) -> list[Decision]:
        """Return the decisions about what has not come, oldest first."""
        rows = await self._store.run(EARLY, {**owned.parameters(), "since": since})
        return [
            Decision(
                decision_id=row[0],
                tenant=Tenant(owned.tenant),
                destination=DestinationName(owned.destination),
                aggregate=Aggregate(row[1]),
                kind=DecisionKind(row[2]),
                delivery_id=row[3],
                sequence=row[4],
                version=row[5],
                states=tuple(State(word) for word in row[6]),
                decided_by=row[7],
                reason=row[8],
                decided_at=row[9],
                evidence=row[10],
                evidence_digest=row[11],
            )
            for row in rows
        ]

    async def judged(self, owned: Owned, decision_id: uuid.UUID) -> Judged:
        """Return what became of a decision so far."""
        rows = await self._store.run(JUDGED, {**owned.parameters(), "decision_id": str(decision_id)})
        return Judged(rows[0][0]) if rows else Judged.OPEN

    async def standing(self, owned: Owned, decision: Decision) -> Standing | None:
        """Return the row of the delivery a decision is about."""
        rows = await self._store.run(STANDING, {**owned.parameters(), **_about(decision)})
        return Standing(Feed(*rows[0][:-2]), *rows[0][-2:]) if rows else None

    async def blocking(self, owned: Owned, aggregate: str) -> int:
        """Return how many rows hold a lane."""
        rows = await self._store.run(BLOCKING, {**owned.parameters(), "aggregate": aggregate})
        return int(rows[0][0])

    async def behind(self, owned: Owned, aggregate: str, sequence: int) -> int:
        """Return how many deliveries of an aggregate wait behind a number."""
        rows = await self._store.run(BEHIND, {**owned.parameters(), "aggregate": aggregate, "sequence": sequence})
        return int(rows[0][0])

    async def record(self, owned: Owned, decision: Decision, judged: Judged, why: str | None, now: datetime) -> None:
        """Write a verdict that moves nothing; one that is there stays."""
        await self._store.fenced(RECORD, owned, _values(decision, judged, why, now))

    async def carry_out(self, owned: Owned, decision: Decision, move: RowMove, now: datetime) -> None:
        """Move the row and write that the decision was applied, both or neither.

        Raises:
            InvariantBroken: the row was moved by somebody else although it stood still.
        """
        values = {
            **_values(decision, Judged.APPLIED, None, now),
            "delivery_id": move.delivery_id,
            "state": move.state,
            "version": move.version,
            "blocks": move.blocks,
            "error_code": move.error_code,
            "detail": move.detail,
            "pending_outcome": move.pending_outcome,
            "pending_state": move.pending_state,
        }
        await self._applied(CARRY_OUT, owned, decision, values)

    async def unblock(self, owned: Owned, decision: Decision, delivery_id: str, now: datetime) -> None:
        """Let a lane go on behind a gap resolution that was refused for good."""
        values = {**_values(decision, Judged.APPLIED, None, now), "delivery_id": delivery_id}
        await self._applied(UNBLOCK, owned, decision, values)

    async def _applied(self, query: str, owned: Owned, decision: Decision, values: Mapping[str, Any]) -> None:
        if await self._store.fenced(query, owned, values):
            return
        if await self.judged(owned, decision.decision_id) is not Judged.APPLIED:
            raise InvariantBroken(f"decision {decision.decision_id} found its delivery moved while it stood still")


def _about(decision: Decision) -> dict[str, Any]:
    return {
        "aggregate": decision.aggregate,
        "about": None if decision.delivery_id is None else str(decision.delivery_id),
        "sequence": decision.sequence,
    }


def _values(decision: Decision, judged: Judged, why: str | None, now: datetime) -> dict[str, Any]:
    states: Sequence[str] = [state.value for state in decision.states]
    return {
        **_about(decision),
        "decision_id": str(decision.decision_id),
        "kind": decision.kind.value,
        "made_on": decision.version,
        "states": states,
        "decided_by": decision.decided_by,
        "reason": decision.reason,
        "decided_at": decision.decided_at,
        "evidence": decision.evidence,
        "evidence_digest": decision.evidence_digest,
        "verdict": judged.value,
        "why": why,
        "now": now,
    }
