"""Were the promises kept? Books of the listeners against what the producers committed, and nothing else.

Pure, so that it can be shown to say no: the tests doctor the books one line at a time. The fabric's own read model is
only asked for what a listener cannot know (states, attempts); whether something happened, happened twice, or in the
wrong order is read from the listeners' ledgers.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from waybill.contracts.states import State

__all__ = ["Books", "Effect", "Issued", "Known", "Promise", "Request", "Verdict", "judge"]

#: Ids named in a broken promise, at most.
NAMED: Final = 5
#: A request whose signed timestamp is older than this at arrival, in seconds, was not signed for this attempt.
SIGNED_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """One delivery that a committed transaction promised."""

    tenant: str
    destination: str
    command_id: UUID
    delivery_id: UUID
    aggregate: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One thing a listener did, as committed in its ledger; `position` is the order."""

    destination: str
    delivery_id: UUID
    aggregate: str
    sequence: int
    position: int
    executed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request a listener received, whatever became of it."""

    delivery_id: UUID
    body_sha256: str
    signature: str
    #: The timestamp under the signature, whole seconds.
    signed_at: datetime
    arrived_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the read model says of one delivery."""

    state: State
    #: Audited attempts, repeats included.
    attempts: int
    #: Repeats among them that the worker settled by its own row, without a request.
    unsent_repeats: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Everything the verdict is made from, of this run alone."""

    #: Commands the application committed with its business rows, and those rows.
    commands: int
    business_rows: int
    issued: Sequence[Issued]
    effects: Sequence[Effect]
    requests: Sequence[Request]
    known: Mapping[UUID, Known]
    dead_letters: int
    #: Holes and reused numbers the read model found among the run's aggregates.
    anomalies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise, whether it was kept, and in a few words by what it was seen."""

    name: str
    is_kept: bool
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The numbers, and the promises behind them."""

    commands: int
    deliveries: int
    attempts: int
    acknowledged: int
    dead_letters: int
    duplicates_suppressed: int
    order_violations: int
    lost: int
    doubled: int
    promises: tuple[Promise, ...]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return all(promise.is_kept for promise in self.promises)


def judge(books: Books) -> Verdict:
    """Compare the books and say which promises were kept."""
    done = Counter(effect.delivery_id for effect in books.effects)
    lost = [issued.delivery_id for issued in books.issued if not done[issued.delivery_id]]
    doubled = [delivery for delivery, times in done.items() if times > 1]
    promised = {issued.delivery_id for issued in books.issued}
    foreign = [delivery for delivery in done if delivery not in promised]
    disorder = _out_of_order(books.effects)
    repeats = _repeats(books)
    unsent = sum(books.known[i.delivery_id].unsent_repeats for i in books.issued if i.delivery_id in books.known)
    states = [books.known[i.delivery_id].state for i in books.issued if i.delivery_id in books.known]
    acknowledged = states.count(State.ACKNOWLEDGED)
    changed, unsigned = _changed_bodies(books.requests), _reused_signatures(books.requests)
    numbering = _misnumbered(books.issued)
    unaudited = _unaudited(books)
    promises = (
        _promise(
            "business row and command commit together",
            books.commands == books.business_rows,
            f"{books.business_rows} business rows, {books.commands} commands",
        ),
        _promise("numbers are 1..n per aggregate and destination", not numbering and not books.anomalies,
                 _named(f"{len(numbering)} lanes misnumbered, {books.anomalies} anomalies in the topics", numbering)),
        _promise("nothing is lost", not lost, _named(f"{len(lost)} of {len(books.issued)} had no effect", lost)),
        _promise("every effect happens once", not doubled, _named(f"{len(doubled)} happened more than once", doubled)),
        _promise("nothing happens that was not committed", not foreign, _named(f"{len(foreign)} unknown", foreign)),
        _promise("effects follow the order of each aggregate", not disorder, f"{disorder} out of order"),
        _promise("every delivery ends acknowledged", acknowledged == len(books.issued) and not books.dead_letters,
                 f"{acknowledged} of {len(books.issued)}, {books.dead_letters} dead letters"),
        _promise("a repeat arrived and did nothing", repeats > 0, f"{repeats} by the listeners, {unsent} more by the workers"),
        _promise("every request is audited", not unaudited, _named(f"{len(unaudited)} were not", unaudited)),
        _promise("every attempt sends the same bytes", not changed, _named(f"{len(changed)} changed", changed)),
        _promise("every attempt is signed anew", not unsigned, _named(f"{len(unsigned)} reused a signature", unsigned)),
    )  # fmt: skip
    return Verdict(
        commands=books.commands,
        deliveries=len(books.issued),
        attempts=sum(books.known[i.delivery_id].attempts for i in books.issued if i.delivery_id in books.known),
        acknowledged=acknowledged,
        dead_letters=books.dead_letters,
        duplicates_suppressed=repeats + unsent,
        order_violations=disorder,
        lost=len(lost),
        doubled=len(doubled),
        promises=promises,
    )


def _promise(name: str, is_kept: bool, seen: str) -> Promise:
    return Promise(name=name, is_kept=is_kept, seen=seen)


def _named(text: str, found: Sequence[object]) -> str:
    return f"{text}: {', '.join(map(str, found[:NAMED]))}" if found else text


def _out_of_order(effects: Sequence[Effect]) -> int:
    """Count effects that came after one with a higher number of the same aggregate and destination."""
    highest: dict[tuple[str, str], int] = defaultdict(int)
    count = 0
    for effect in sorted(effects, key=lambda each: (each.destination, each.position)):
        lane = (effect.destination, effect.aggregate)
        count += effect.sequence < highest[lane]
        highest[lane] = max(highest[lane], effect.sequence)
    return count


def _repeats(books: Books) -> int:
    """Count requests that came for something already done; doubled effects have not suppressed anything."""
    first: dict[UUID, datetime] = {}
    for effect in books.effects:
        first[effect.delivery_id] = min(first.get(effect.delivery_id, effect.executed_at), effect.executed_at)
    late = Counter(
        request.delivery_id
        for request in books.requests
        if request.delivery_id in first and request.arrived_at > first[request.delivery_id]
    )
    again = Counter(effect.delivery_id for effect in books.effects)
    return sum(max(count - (again[delivery] - 1), 0) for delivery, count in late.items())


def _unaudited(books: Books) -> list[UUID]:
    """Return deliveries with more requests at the listener than audited attempts (AT-2)."""
    asked = Counter(request.delivery_id for request in books.requests)
    return [one for one, times in asked.items() if one not in books.known or books.known[one].attempts < times]


def _misnumbered(issued: Sequence[Issued]) -> list[str]:
    lanes: dict[str, list[int]] = defaultdict(list)
    for each in issued:
        lanes[f"{each.tenant}/{each.destination} {each.aggregate}"].append(each.sequence)
    return [lane for lane, numbers in lanes.items() if sorted(numbers) != list(range(1, len(numbers) + 1))]


def _changed_bodies(requests: Sequence[Request]) -> list[UUID]:
    bodies: dict[UUID, set[str]] = defaultdict(set)
    for request in requests:
        bodies[request.delivery_id].add(request.body_sha256)
    return [delivery for delivery, digests in bodies.items() if len(digests) > 1]


def _reused_signatures(requests: Sequence[Request]) -> list[UUID]:
    """Return deliveries that arrived under one signature with two timestamps, or with a timestamp that is old.

    Two attempts within one second are equal to the last bit, and rightly so: what is signed has whole seconds.
    """
    timestamps: dict[tuple[UUID, str], datetime] = {}
    found: dict[UUID, None] = {}
    for request in requests:
        first = timestamps.setdefault((request.delivery_id, request.signature), request.signed_at)
        if first != request.signed_at or (request.arrived_at - request.signed_at).total_seconds() > SIGNED_WITHIN_S:
            found[request.delivery_id] = None
    return list(found)
