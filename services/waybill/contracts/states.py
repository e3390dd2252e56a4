"""The reconciliation state of one delivery: eight states, the moves between them, nothing else.

A delivery (one command at one destination) is *queued* from the moment its command commits. Only the owner
of the command's partition moves it; every move raises its version by one. A move that is not in
`TRANSITIONS` is refused and audited, and the row stays as it was (RS-1, RS-2).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["BLOCKING", "BY_PEOPLE", "FINAL", "HANDED_OVER", "TRANSITIONS", "Move", "State"]


class State(StrEnum):
    """Where a delivery stands."""

    #: Durable, not delivered. Set by the commit of the command; dispatch moves it on.
    QUEUED = "queued"
    #: The listener accepted it, or it was handed over in Kafka, and a result is owed. Set on 202 and by the hand-over;
    #: a bounded wait moves it on.
    DELIVERED = "delivered"
    #: The destination proved the operation. Final.
    ACKNOWLEDGED = "acknowledged"
    #: A transient failure was classified and the next attempt has a time.
    RETRYING = "retrying"
    #: It may have happened. A status query or people move it on, never a blind retry.
    AMBIGUOUS = "ambiguous"
    #: Permanent refusal or expiry; its owner is told.
    FAILED = "failed"
    #: A lawful or technical exception with a source, a reviewer and an expiry.
    EXCEPTION = "exception"
    #: No automated path is left; people decide.
    DEAD_LETTER = "dead_letter"


class Move(StrEnum):
    """What happened to a delivery, named for the state it leads to."""

    #: A complete, verified receipt or result arrived, or people saw that it was done and named the evidence.
    ACKNOWLEDGE = "acknowledge"
    #: The listener took it and answers later.
    ACCEPT = "accept"
    #: A classified transient failure; also a further one while already retrying.
    RETRY = "retry"
    #: A byte may have had an effect and nobody knows.
    LOSE_TRACK = "lose_track"
    #: A permanent error, expiry before any byte left, superseded, cancelled.
    FAIL = "fail"
    #: People opened an approved exception.
    EXCEPT = "except"
    #: The automated path is used up.
    BURY = "bury"
    #: Back to normal dispatch: by schedule from retrying, by audited people from failed and dead_letter.
    REQUEUE = "requeue"


FINAL: Final = frozenset({State.ACKNOWLEDGED})
#: What a delivery carries in `detail` that people acknowledged; the evidence is with their decision.
BY_PEOPLE: Final = "acknowledged_by_people"
#: What a delivery carries in `detail` that lies in its destination's topic: nobody has answered it yet.
HANDED_OVER: Final = "handed_over"
#: While a delivery is in one of these its aggregate's lane waits for it.
BLOCKING: Final = frozenset({State.QUEUED, State.DELIVERED, State.RETRYING})

TRANSITIONS: Final[Mapping[tuple[State, Move], State]] = {
    (State.QUEUED, Move.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.QUEUED, Move.ACCEPT): State.DELIVERED,
    (State.QUEUED, Move.RETRY): State.RETRYING,
    (State.QUEUED, Move.LOSE_TRACK): State.AMBIGUOUS,
    (State.QUEUED, Move.FAIL): State.FAILED,
    (State.QUEUED, Move.EXCEPT): State.EXCEPTION,
    (State.QUEUED, Move.BURY): State.DEAD_LETTER,
    (State.DELIVERED, Move.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.DELIVERED, Move.RETRY): State.RETRYING,
    (State.DELIVERED, Move.LOSE_TRACK): State.AMBIGUOUS,
    (State.DELIVERED, Move.FAIL): State.FAILED,
    (State.DELIVERED, Move.EXCEPT): State.EXCEPTION,
    (State.RETRYING, Move.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.RETRYING, Move.ACCEPT): State.DELIVERED,
    (State.RETRYING, Move.RETRY): State.RETRYING,
    (State.RETRYING, Move.REQUEUE): State.QUEUED,
    (State.RETRYING, Move.LOSE_TRACK): State.AMBIGUOUS,
    (State.RETRYING, Move.FAIL): State.FAILED,
    (State.RETRYING, Move.EXCEPT): State.EXCEPTION,
    (State.RETRYING, Move.BURY): State.DEAD_LETTER,
    (State.AMBIGUOUS, Move.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.AMBIGUOUS, Move.RETRY): State.RETRYING,
    (State.AMBIGUOUS, Move.FAIL): State.FAILED,
    (State.AMBIGUOUS, Move.EXCEPT): State.EXCEPTION,
    (State.AMBIGUOUS, Move.BURY): State.DEAD_LETTER,
    (State.FAILED, Move.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.FAILED, Move.EXCEPT): State.EXCEPTION,
    (State.FAILED, Move.BURY): State.DEAD_LETTER,
    (State.FAILED, Move.REQUEUE): State.QUEUED,
    (State.EXCEPTION, Move.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.EXCEPTION, Move.FAIL): State.FAILED,
    (State.DEAD_LETTER, Move.ACKNOWLEDGE): State.ACKNOWLEDGED,
    (State.DEAD_LETTER, Move.FAIL): State.FAILED,
    (State.DEAD_LETTER, Move.EXCEPT): State.EXCEPTION,
    (State.DEAD_LETTER, Move.REQUEUE): State.QUEUED,
}
