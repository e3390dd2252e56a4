"""The fold of one batch: records in, at most one row per key out.

Folding is idempotent and does not care how the topics interleave, only about the order inside one partition:
existence in the commands topic is *queued*; a state counts when its version is higher than what is known (the
store compares again with what it holds); an attempt is kept once per attempt id, a repeat of the relay or of a
later owner has another id and stays; a move once per outcome id. If this were not so, a rebuild would give
other rows than following did.
"""

import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from waybill.contracts.states import TRANSITIONS
from waybill.readmodel.core.records import (
    AnomalyKind,
    AnomalyRow,
    AttemptRow,
    DeadLetterRow,
    DeliveryRow,
    Fact,
    MoveRow,
    OutcomeSeen,
    Place,
    Rows,
    StateRow,
)

__all__ = ["fold", "illegal_move"]

Key = tuple[str, uuid.UUID]

_LEGAL: Final = frozenset((str(before), str(after)) for (before, _), after in TRANSITIONS.items())


def illegal_move(place: Place, move: MoveRow) -> AnomalyRow | None:
    """Return the anomaly of a move that the transition table does not hold, else None (RS-2)."""
    if (move.state_before, move.state_after) in _LEGAL:
        return None
    return AnomalyRow(
        tenant=place.tenant,
        kind=AnomalyKind.ILLEGAL_MOVE,
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
        delivery_id=move.delivery_id,
        detail=f"{move.state_before} to {move.state_after} at version {move.version} is not a move",
        seen_at=place.at,
    )


class _Batch:
    """The rows of one batch by key."""

    def __init__(self) -> None:
        self.deliveries: dict[Key, DeliveryRow] = {}
        self.states: dict[Key, StateRow] = {}
        self.attempts: dict[Key, AttemptRow] = {}
        self.moves: dict[Key, MoveRow] = {}
        self.dead_letters: dict[Key, DeadLetterRow] = {}
        self.anomalies: list[AnomalyRow] = []

    def add_delivery(self, row: DeliveryRow) -> None:
        key = (row.tenant, row.delivery_id)
        first = self.deliveries.setdefault(key, row)
        if first is not row:
            self.deliveries[key] = replace(first, copies=first.copies + row.copies)

    def add_state(self, row: StateRow) -> None:
        key = (row.tenant, row.delivery_id)
        known = self.states.get(key)
        if known is None or known.version < row.version:
            self.states[key] = row

    def add_outcome(self, seen: OutcomeSeen) -> None:
        if seen.attempt is not None:
            self.attempts.setdefault((seen.attempt.tenant, seen.attempt.attempt_id), seen.attempt)
        if seen.move is not None:
            self.moves.setdefault((seen.move.tenant, seen.move.outcome_id), seen.move)
            if (anomaly := illegal_move(seen.place, seen.move)) is not None:
                self.anomalies.append(anomaly)

    def add(self, fact: Fact) -> None:
        if isinstance(fact, DeliveryRow):
            self.add_delivery(fact)
        elif isinstance(fact, StateRow):
            self.add_state(fact)
        elif isinstance(fact, OutcomeSeen):
            self.add_outcome(fact)
        elif isinstance(fact, DeadLetterRow):
            self.dead_letters.setdefault((fact.tenant, fact.dead_letter_id), fact)
        else:
            self.anomalies.append(fact)


def fold(facts: Iterable[Fact]) -> Rows:
    """Fold a batch; facts of one partition come in the order of its offsets."""
    batch = _Batch()
    for fact in facts:
        batch.add(fact)
    return Rows(
        deliveries=list(batch.deliveries.values()),
        states=list(batch.states.values()),
        attempts=list(batch.attempts.values()),
        moves=list(batch.moves.values()),
        dead_letters=list(batch.dead_letters.values()),
        anomalies=batch.anomalies,
    )
