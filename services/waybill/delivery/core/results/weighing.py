"""Whether a result that is believed moves the delivery it is about.

| the delivery is | a proof | a failure |
| --- | --- | --- |
| queued, retrying | acknowledged, nothing more is sent | no move: it speaks of an attempt before the next one |
| delivered | acknowledged | as if it had been the answer |
| ambiguous | acknowledged | no move: people, or the status query, decide |
| anything else | no move | no move |
"""

from enum import StrEnum
from typing import Final

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.states import State
from waybill.delivery.core.classify import Verdict

__all__ = ["NO_RESULT", "Weighed", "moves"]

_PROOF_MOVES: Final = frozenset({State.QUEUED, State.RETRYING, State.DELIVERED, State.AMBIGUOUS})

#: The end of a wait in which nothing came: the destination took the delivery, and may have done it.
NO_RESULT: Final = Verdict(
    code=ErrorCode.TRANSIENT_NETWORK, phase=Phase.AFTER_SENDING, detail="no_result", may_have_acted=True
)


class Weighed(StrEnum):
    """What became of a result that arrived."""

    #: Believed; its delivery is not where a result can be weighed, or not here yet.
    WAITING = "waiting"
    #: It moved its delivery.
    SETTLED = "settled"
    #: Believed, and came when its delivery could not be moved by it any more.
    LATE = "late"
    #: Not believed, or nothing that could close a delivery.
    REFUSED = "refused"


def moves(state: State, verdict: Verdict) -> bool:
    """Whether a result moves a delivery that stands there and of which nothing is under way."""
    return state in _PROOF_MOVES if verdict.code is None else state is State.DELIVERED
