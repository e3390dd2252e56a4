"""What a request has come to: a pure function of facts, in whatever order they were read.

The facts are its deliveries (a command at a destination exists when it lies in the topic), the newest known state of
each, and exceptions that people approved. A state of a delivery that is not known yet counts for nothing until its
command is read: whoever folds keeps it, and asks again then.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from waybill.contracts.states import State

__all__ = ["ApprovedException", "Closing", "Delivery", "Outcome", "Standing", "newest", "satisfies", "standing"]


class Closing(StrEnum):
    """What a required delivery means for its request."""

    #: The destination proved the operation.
    DONE = "done"
    #: An approved exception permits closing without it.
    EXCUSED = "excused"
    #: It is in the way.
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One command of the request at one destination, as the command's record says it."""

    delivery_id: UUID
    command_id: UUID
    destination: str
    #: Whether the request waits for it.
    required: bool
    #: The command that its command corrects.
    replaces: UUID | None = None
    #: How many commands the request has, where this command says so: what seals the request.
    request_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A state of one delivery, as its owner wrote it."""

    delivery_id: UUID
    #: Raised by one with every move.
    version: int
    state: State
    #: The owner's clock when it decided.
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedException:
    """An exception of one delivery that its reviewer approved, and has not taken back since."""

    delivery_id: UUID
    #: Whether the request may be closed without this delivery.
    permits_closure: bool
    #: From this instant on it counts for nothing.
    expires_at: datetime

    def counts(self, now: datetime) -> bool:
        """Whether it permits closing at this instant."""
        return self.permits_closure and now < self.expires_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a request has come to at one instant. Counts are of what counts: replaced commands are left out."""

    #: Commands that count.
    commands: int
    #: How many there are to be; None while nobody said so.
    size: int | None
    #: Required deliveries by what they mean for the request.
    done: int
    excused: int
    open: int
    #: When the first of the exceptions that it leans on runs out; None where it leans on none.
    leans_until: datetime | None
    #: The latest decision of an owner among the deliveries that are done.
    settled_at: datetime | None

    @property
    def is_sealed(self) -> bool:
        """Whether it is known how many commands there are to be."""
        return self.size is not None

    @property
    def is_complete(self) -> bool:
        """Whether every command is there and no required delivery is in the way (RS-11)."""
        return self.size is not None and self.commands >= self.size and self.open == 0


def newest(outcomes: Iterable[Outcome]) -> dict[UUID, Outcome]:
    """Return the state of each delivery that counts: the one with the highest version, whatever came last."""
    found: dict[UUID, Outcome] = {}
    for outcome in outcomes:
        known = found.get(outcome.delivery_id)
        if known is None or known.version < outcome.version:
            found[outcome.delivery_id] = outcome
    return found


def satisfies(state: State | None, exceptions: Iterable[ApprovedException], now: datetime) -> Closing:
    """Return what one required delivery means for its request.

    Args:
        state: where it stands; None while it is known from its command only.
        exceptions: those of this delivery; they count whatever its worker still does about it.
        now: the instant that is asked about.
    """
    if state is State.ACKNOWLEDGED:
        return Closing.DONE
    if any(each.counts(now) for each in exceptions):
        return Closing.EXCUSED
    return Closing.OPEN


def standing(
    deliveries: Collection[Delivery],
    outcomes: Mapping[UUID, Outcome],
    exceptions: Collection[ApprovedException],
    now: datetime,
) -> Standing:
    """Return what a request has come to.

    A command that another one of the request replaces is left out of the count, and its delivery at each destination
    that the other one goes to as well. Where the other one does not go, the replaced delivery still has to be done.
    Where commands name different sizes the largest counts: closing too late can be mended, too early cannot.

    Args:
        deliveries: of this request, each once.
        outcomes: the newest state by delivery id; of other deliveries too, they are not looked at.
        exceptions: that people approved; of other deliveries too.
        now: the instant that is asked about.
    """
    commands = {each.command_id for each in deliveries}
    corrections = {(each.replaces, each.destination) for each in deliveries if each.replaces != each.command_id}
    replaced = {command for command, _ in corrections}
    excuses: dict[UUID, list[ApprovedException]] = {}
    for exception in exceptions:
        excuses.setdefault(exception.delivery_id, []).append(exception)
    counts = dict.fromkeys(Closing, 0)
    leans: list[datetime] = []
    decided: list[datetime] = []
    for each in deliveries:
        if not each.required or (each.command_id, each.destination) in corrections:
            continue
        outcome, mine = outcomes.get(each.delivery_id), excuses.get(each.delivery_id, [])
        closing = satisfies(outcome.state if outcome is not None else None, mine, now)
        counts[closing] += 1
        if closing is Closing.EXCUSED:
            leans.append(max(exception.expires_at for exception in mine if exception.counts(now)))
        elif closing is Closing.DONE and outcome is not None:
            decided.append(outcome.at)
    return Standing(
        commands=len(commands - replaced),
        size=max((each.request_size for each in deliveries if each.request_size is not None), default=None),
        done=counts[Closing.DONE],
        excused=counts[Closing.EXCUSED],
        open=counts[Closing.OPEN],
        leans_until=min(leans, default=None),
        settled_at=max(decided, default=None),
    )
