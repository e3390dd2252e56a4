"""Which part is struck when: two endless rows of strikes, each made from the seed.

One row strikes workers, the other the services under them, side by side, so that a worker dies while a broker is
away. A row goes round by round; in each round every kind of its row comes once, in a drawn order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Final

from waybill.chaos.core.draws import between, draw

__all__ = [
    "FREEZE_S",
    "SERVICES",
    "SERVICES_ALONE",
    "WORKERS",
    "Strike",
    "StrikeKind",
    "services",
    "strikes",
]


class StrikeKind(StrEnum):
    """What is done to one part."""

    #: SIGKILL to a worker, which is started again under the same slot.
    WORKER_KILL = "worker_kill"
    #: SIGSTOP to a worker, and SIGCONT when its partitions have long had another owner.
    WORKER_FREEZE = "worker_freeze"
    #: One more worker joins, works, and leaves in order.
    MEMBER_CHURN = "member_churn"
    #: SIGKILL to Connect, which is started again.
    CONNECT_KILL = "connect_kill"
    #: SIGKILL to one of several brokers, which is started again.
    BROKER_KILL = "broker_kill"
    #: SIGSTOP to the only broker for some seconds: everybody's requests to Kafka hang and time out.
    BROKER_FREEZE = "broker_freeze"
    #: SIGKILL to PostgreSQL and all its sessions; it is started again.
    POSTGRES_KILL = "postgres_kill"


#: A round of each row; a worker is killed twice in a round.
WORKERS: Final = (
    StrikeKind.WORKER_KILL,
    StrikeKind.WORKER_FREEZE,
    StrikeKind.WORKER_KILL,
    StrikeKind.MEMBER_CHURN,
)
SERVICES: Final = (StrikeKind.CONNECT_KILL, StrikeKind.BROKER_KILL, StrikeKind.POSTGRES_KILL)
#: With one broker, which is neither killed nor asked to end: nobody else leads what it led, and Kafka 4.4 leaves things
#: behind that no client clears. Killed, it may load a group, drop it and load it again while an aborted transaction is
#: being ended: the offset that transaction would have committed stays pending. Asked to end, it takes partitions
#: without a leader for deleted and skips their markers: the transaction is over for its coordinator and open in the
#: log, and whoever reads committed records, Connect among them, waits for it.
SERVICES_ALONE: Final = (StrikeKind.CONNECT_KILL, StrikeKind.BROKER_FREEZE, StrikeKind.POSTGRES_KILL)
#: Beyond the lease (3 s) and the group session (10 s): somebody else owns by then.
FREEZE_S: Final = (14.0, 18.0)
_LASTS: Final = {
    StrikeKind.WORKER_KILL: (0.2, 2.0),
    StrikeKind.WORKER_FREEZE: FREEZE_S,
    StrikeKind.MEMBER_CHURN: (6.0, 9.0),
    StrikeKind.CONNECT_KILL: (0.2, 2.0),
    StrikeKind.BROKER_KILL: (0.2, 2.0),
    StrikeKind.BROKER_FREEZE: (3.0, 6.0),  # below broker.session.timeout.ms (9 s), or it fences itself
    StrikeKind.POSTGRES_KILL: (0.2, 2.0),
}
#: Quiet seconds before a strike.
_PAUSE: Final = {"workers": (1.5, 4.0), "services": (3.0, 7.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One strike; which of several alike it hits is `victim` of their number."""

    kind: StrikeKind
    #: Quiet seconds before it.
    pause_s: float
    #: Seconds the part stays away.
    lasts_s: float
    #: In [0, 1): which of several.
    victim: float
    #: Counted from 0; the first round is always finished.
    round: int


def services(brokers: int) -> tuple[StrikeKind, ...]:
    """Return what is done to the services of a stack."""
    return SERVICES if brokers > 1 else SERVICES_ALONE


def strikes(seed: int, row: tuple[StrikeKind, ...]) -> Iterator[Strike]:
    """Yield the strikes of one row without end."""
    name = "workers" if row is WORKERS else "services"
    for number in count():
        order = sorted(range(len(row)), key=lambda place: draw(seed, name, number, "order", place))
        for place in order:
            words = (name, number, place)
            yield Strike(
                kind=row[place],
                pause_s=between(seed, *_PAUSE[name], "pause", *words),
                lasts_s=between(seed, *_LASTS[row[place]], "lasts", *words),
                victim=draw(seed, "victim", *words),
                round=number,
            )
