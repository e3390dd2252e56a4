"""Redriving many deliveries: decisions in batches, each followed until it is judged.

A decision's identity is its delivery and the version it is made on. So a run that is broken off is begun again with
the same words: what is decided is not decided twice, and what moved on is not meant any more. Nothing is remembered
but the decisions themselves.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final
from uuid import UUID

import psycopg

from waybill.contracts.decision import Decision, DecisionKind, decision_id
from waybill.delivery.core.decisions import Judged
from waybill.delivery.core.replay.sorting import batches, is_too_much
from waybill.delivery.decisions.making import make_decision
from waybill.kernel.clock import Clock
from waybill.kernel.ids import Aggregate, DestinationName, Tenant

__all__ = ["Carried", "Carrier", "Look", "Meant", "Terms", "decided_before"]

_LOOK_S: Final = 0.1
#: How long the deliveries of a batch may take to show what becomes of them.
_SETTLE_S: Final = 2.0
#: Batches that are looked at for setbacks.
_RECENT: Final = 10
#: Decisions looked at in one statement.
_MANY: Final = 5_000

_WANTED: Final = """
FROM unnest(%(tenants)s::text[], %(destinations)s::text[], %(ids)s::uuid[]) AS w (tenant, destination, decision_id)
JOIN delivery.decision AS d USING (tenant, destination, decision_id)
"""
KNOWN: Final = "SELECT d.delivery_id" + _WANTED
LOOK: Final = (
    """
SELECT d.verdict, coalesce(d.detail, ''), count(*),
    count(*) FILTER (WHERE t.version > d.version + 1 AND t.state IN ('ambiguous', 'failed', 'dead_letter')),
    count(*) FILTER (WHERE t.version = d.version + 1 AND t.state = 'queued' AND t.blocks)"""
    + _WANTED
    + """
LEFT JOIN delivery.open_task AS t
    ON t.tenant = d.tenant AND t.destination = d.destination AND t.delivery_id = d.delivery_id
GROUP BY 1, 2
"""
)


@dataclass(frozen=True, slots=True)
class Meant:
    """A delivery that is to be sent once more."""

    tenant: str
    destination: str
    aggregate: str
    delivery_id: UUID
    #: The version of its state that was seen.
    version: int

    @property
    def decision_id(self) -> UUID:
        """The identity of the decision to send it once more from here."""
        return decision_id(self.delivery_id, DecisionKind.REDRIVE, self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Under which terms a run decides."""

    by: str
    reason: str
    #: Seconds a batch may wait for its verdicts.
    wait_s: float
    #: The share of setbacks at which it stops.
    stop_at: float


@dataclass(slots=True)
class Look:
    """What has become of some decisions."""

    #: Verdict, with its detail behind a colon → decisions.
    verdicts: dict[str, int] = field(default_factory=dict)
    open: int = 0
    judged: int = 0
    void: int = 0
    #: Their deliveries that ended without acknowledgement once more.
    ended_again: int = 0
    #: Their deliveries that nothing has happened to yet.
    starting: int = 0


@dataclass(frozen=True, slots=True)
class Carried:
    """What a run came to."""

    #: Decisions that were new.
    decided: int
    look: Look
    #: Why it stopped before the end: `too_many_setbacks`, `not_judged`; None at the end.
    stopped: str | None


def decided_before(connection: psycopg.Connection[Any], meant: Sequence[Meant]) -> set[UUID]:
    """Return those deliveries about which the same was decided before."""
    return {row[0] for some in _slices(meant) for row in connection.execute(KNOWN.encode(), _wanted(some))}


class Carrier:
    """Makes the decisions of one run over a connection to the control database, in autocommit."""

    def __init__(
        self, connection: psycopg.Connection[Any], write: Callable[[Decision], bytes], terms: Terms, clock: Clock
    ) -> None:
        """Take what it needs; `write` makes the record for the topic."""
        self._connection, self._write, self._terms, self._clock = connection, write, terms, clock

    def carry(self, meant: Sequence[Meant], tell: Callable[[int, Look], None]) -> Carried:
        """Decide about all of them, batch by batch, until too much goes wrong; `tell` hears of each batch."""
        decided = reached = 0
        recent: deque[Sequence[Meant]] = deque(maxlen=_RECENT)
        for batch in batches(meant):
            for one in batch:
                decision = self._decision(one)
                decided += make_decision(self._connection, decision, self._write(decision))
            reached += len(batch)
            recent.append(batch)
            is_judged = self._follow(batch)
            look = self._look([one for some in recent for one in some])
            tell(reached, look)
            if not is_judged:
                return Carried(decided, self._look(meant[:reached]), "not_judged")
            if is_too_much(look.judged, look.void + look.ended_again, self._terms.stop_at):
                return Carried(decided, self._look(meant[:reached]), "too_many_setbacks")
        return Carried(decided, self._look(meant), None)

    def _follow(self, batch: Sequence[Meant]) -> bool:
        """Wait until a batch is judged and its deliveries have begun, within bounds; return whether any is judged."""
        began = self._clock.monotonic()
        while True:
            look, waited = self._look(batch), self._clock.monotonic() - began
            is_waiting = look.open and waited < self._terms.wait_s
            if not is_waiting and (not look.starting or waited >= _SETTLE_S):
                return look.judged > 0
            Event().wait(_LOOK_S)

    def _look(self, decided: Sequence[Meant]) -> Look:
        look = Look()
        for some in _slices(decided):
            for verdict, detail, count, ended, starting in self._connection.execute(LOOK.encode(), _wanted(some)):
                name = f"{verdict}:{detail}" if detail else verdict
                look.verdicts[name] = look.verdicts.get(name, 0) + count
                look.open += count if verdict == Judged.OPEN else 0
                look.judged += count if verdict != Judged.OPEN else 0
                look.void += count if verdict == Judged.VOID else 0
                look.ended_again += ended
                look.starting += starting
        return look

    def _decision(self, one: Meant) -> Decision:
        return Decision(
            decision_id=one.decision_id,
            tenant=Tenant(one.tenant),
            destination=DestinationName(one.destination),
            aggregate=Aggregate(one.aggregate),
            kind=DecisionKind.REDRIVE,
            delivery_id=one.delivery_id,
            sequence=None,
            version=one.version,
            states=(),
            decided_by=self._terms.by,
            reason=self._terms.reason,
            decided_at=self._clock.now(),
        )


def _wanted(batch: Sequence[Meant]) -> Mapping[str, Any]:
    return {
        "tenants": [one.tenant for one in batch],
        "destinations": [one.destination for one in batch],
        "ids": [one.decision_id for one in batch],
    }


def _slices(meant: Sequence[Meant]) -> Iterator[Sequence[Meant]]:
    return (meant[at : at + _MANY] for at in range(0, len(meant), _MANY))
