"""What may go wrong with one request, at the listener and on the way to it.

Which request it hits follows from the seed, the delivery's place (destination, aggregate, sequence) and how often it
has come; from the fourth time on a request meets nothing, so that every campaign can end.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from waybill.chaos.core.draws import between, pick

__all__ = ["LASTS_S", "Mischief", "lasts_s", "mischief_for"]

#: A request that comes for the fourth time is served.
TRIES: Final = 3


class Mischief(StrEnum):
    """One thing that goes wrong with one request."""

    #: The listener takes its time before it acts.
    LISTENER_SLOW = "listener_slow"
    #: The listener answers 503 and has done nothing.
    LISTENER_UNAVAILABLE = "listener_unavailable"
    #: The listener answers 429 with `Retry-After` and has done nothing.
    LISTENER_LIMITED = "listener_limited"
    #: The listener acts, sends half an answer and hangs up.
    LISTENER_HALF = "listener_half"
    #: The listener acts, and answers much later.
    LISTENER_LATE = "listener_late"
    #: The proxy holds the request back.
    PROXY_DELAY = "proxy_delay"
    #: The proxy resets the connection; nothing of the request went on.
    PROXY_RESET_BEFORE = "proxy_reset_before"
    #: The proxy resets the connection after the listener has answered.
    PROXY_RESET_AFTER = "proxy_reset_after"
    #: The proxy passes half of the answer on.
    PROXY_HALF = "proxy_half"
    #: The proxy passes the answer on byte by byte.
    PROXY_DRIP = "proxy_drip"
    #: The proxy resets the connection at once and passes the request on later: a delayed original.
    PROXY_LATE_ORIGINAL = "proxy_late_original"


#: How long each lasts, in seconds, where it lasts.
LASTS_S: Final[Mapping[Mischief, tuple[float, float]]] = {
    Mischief.LISTENER_SLOW: (0.3, 3.5),
    Mischief.LISTENER_LATE: (0.5, 6.0),
    Mischief.PROXY_DELAY: (0.2, 2.5),
    Mischief.PROXY_DRIP: (0.5, 7.0),
    Mischief.PROXY_LATE_ORIGINAL: (0.5, 6.0),
}


def mischief_for(
    seed: int, side: str, shares: Mapping[str, float], place: tuple[str, str, int], time: int
) -> Mischief | None:
    """Return what happens to a request that comes for the `time`-th time, counted from 1; usually nothing.

    `shares` has, by the name of a mischief, the share of requests it hits; each `side` (listener, proxy) draws apart.
    """
    if time > TRIES:
        return None
    name = pick(seed, shares, side, *place, time)
    return None if name is None else Mischief(name)


def lasts_s(seed: int, mischief: Mischief, place: tuple[str, str, int], time: int) -> float:
    """Return how long it lasts this time."""
    low, high = LASTS_S[mischief]
    return between(seed, low, high, "lasts", mischief, *place, time)
