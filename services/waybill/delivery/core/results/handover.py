"""Handing a delivery over in Kafka: what an attempt comes to there, and how long what follows may take.

A hand-over proves nothing. It is written down in the delivery's row, then published with the state it leads to in one
transaction, and the delivery waits. First for its listeners to read past it, which may take as long as the command
lives; then for their result, as long as the destination declares.
"""

from datetime import datetime
from typing import Final

from waybill.contracts.codes import Phase
from waybill.contracts.states import HANDED_OVER
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.lanes import Item

__all__ = ["MAX_BODY", "handed_over", "look_every_s"]

#: Bytes of a body: what a record of a deliveries topic holds, less the room for headers.
MAX_BODY: Final = 900_000
_OFTEN_S: Final = 0.25
_SELDOM_S: Final = 5.0
#: The bound of a wait begins late by at most this part of it, within the two above.
_PART: Final = 20


def handed_over(item: Item, now: datetime) -> Verdict:
    """Return what an attempt comes to that is to be handed over: taken, and to be heard of before its command expires.

    A gap resolution is settled by it: whoever reads the topic reads it before what follows it.
    """
    left = None if item.is_resolution or item.expires_at is None else (item.expires_at - now).total_seconds()
    return Verdict(
        code=None,
        phase=Phase.AFTER_SENDING,
        detail=HANDED_OVER,
        may_have_acted=True,
        accepted_for_s=None if left is None else max(left, 0.0),
    )


def look_every_s(wait_s: float) -> float:
    """Return how often it is looked how far a destination's listeners have read, in seconds.

    Args:
        wait_s: how long a result is waited for after that.
    """
    return min(max(wait_s / _PART, _OFTEN_S), _SELDOM_S)
