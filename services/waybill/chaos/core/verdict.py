"""Were the promises kept under fire? Plain books in, one verdict out; nothing of Waybill is asked or imported.

What was promised comes from the producers' own transactions, what happened from the listener's ledger, what was on
its way from the proxy, what was broken from the log of strikes. Only the final states are the fabric's own word, and
they count for nothing but what is visibly open, parked or unknown.

Two things are told apart on purpose. A reordering that a frozen worker's late original explains is counted as
`frozen_reorders`: a listener that checks no sequence gets order as long as no worker freezes longer than its lease.
And `ambiguous` is no fault as long as there were attempts that nobody can know about; above that number it is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from waybill.chaos.core.mischief import Mischief

__all__ = ["CRASH", "Arrival", "Books", "Demands", "Destination", "Exchange", "Fault", "Promised", "Verdict", "judge"]

#: Deliveries named for each broken promise, at most.
NAMED: Final = 5
#: A frozen worker's late original arrives within so many seconds of its waking up.
WAKES_WITHIN_S: Final = 3.0
#: Signed timestamps are whole seconds.
SIGNED_TO_S: Final = 1.0
ACKNOWLEDGED: Final = "acknowledged"
AMBIGUOUS: Final = "ambiguous"
PARKED: Final = frozenset({"failed", "exception", "dead_letter"})
NON_IDEMPOTENT: Final = "non_idempotent"
#: Profiles whose deliveries are offered again after an attempt that may have acted.
RETRIES_BLINDLY: Final = frozenset({"durable_idempotent"})
#: What a strike on a worker is called, and the two that can leave an attempt nobody knows about.
HITS: Final = frozenset({"worker_kill", "worker_freeze"})
FREEZE: Final = "worker_freeze"
#: A worker that ended without being struck, other than for want of what it needs to start.
CRASH: Final = "worker_crash"
#: After these the sender cannot know whether the listener acted.
MAY_HAVE_ACTED: Final = frozenset(
    {
        Mischief.LISTENER_HALF,
        Mischief.LISTENER_LATE,
        Mischief.LISTENER_SLOW,
        Mischief.PROXY_DELAY,
        Mischief.PROXY_RESET_BEFORE,
        Mischief.PROXY_RESET_AFTER,
        Mischief.PROXY_HALF,
        Mischief.PROXY_DRIP,
        Mischief.PROXY_LATE_ORIGINAL,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One destination as it was applied."""

    profile: str
    #: What its lanes do behind a delivery that ended without acknowledgement: `halt` or `continue`.
    on_unsettled: str = "halt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """One delivery a producer's transaction committed."""

    delivery_id: str
    destination: str
    aggregate: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request as the listener noted it; places are lines of the ledger, which is the order of everything."""

    place: int
    at: float
    destination: str
    delivery_id: str
    aggregate: str
    sequence: int
    #: SHA-256 of the body.
    body: str
    #: The timestamp under the signature, whole seconds.
    signed_at: int
    #: Line at which its effect was done; None when it had none.
    done_place: int | None = None
    mischief: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as the proxy carried it, from its first byte to the last byte of the answer, or to neither."""

    at: float
    #: None: it was still under way when the books were closed.
    until: float | None
    #: The sender's own port.
    port: int
    destination: str
    delivery_id: str
    mischief: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One strike: when, at what, and until when the part was away."""

    kind: str
    target: str
    at: float
    until: float | None = None
    #: The ports a struck worker had open.
    ports: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What a campaign must have done to count."""

    #: By kind of fault, how often at least.
    faults: Mapping[str, int] = field(default_factory=dict)
    hit_in_flight: int = 0
    #: Promised deliveries.
    deliveries: int = 1
    aggregates: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Everything the verdict is made from, of one campaign."""

    destinations: Mapping[str, Destination]
    promised: Sequence[Promised]
    #: In the order of the ledger.
    arrivals: Sequence[Arrival]
    exchanges: Sequence[Exchange]
    faults: Sequence[Fault]
    #: By delivery id, as the owners last moved it.
    states: Mapping[str, str]
    #: By destination, records its group had not read when the books were closed.
    unread: Mapping[str, int]
    demands: Demands = field(default_factory=Demands)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The numbers, and why they are not good enough when they are not."""

    promised: int
    aggregates: int
    arrivals: int
    effects: int
    #: Promised, and neither done nor visible as open, parked or unknown.
    lost: int
    #: Effects nobody promised.
    foreign: int
    order_violations: int
    #: Reorderings that a frozen worker's late original explains.
    frozen_reorders: int
    #: More than one effect of one delivery, or of one place in an aggregate's order, where the listener deduplicates.
    double_effects: int
    #: More than one effect of one delivery where it does not.
    non_idempotent_repeats: int
    #: Deliveries whose attempts did not all have the same bytes.
    changed_bodies: int
    #: Promised and not ended, with nothing before them that waits for people.
    open: int
    #: Behind one that waits for people, in a lane that halts.
    waiting: int
    ambiguous: int
    #: How many may be: attempts in flight at the kills, and lost answers where nothing is repeated blindly.
    ambiguous_allowed: int
    parked: int
    #: Workers that ended by themselves, other than for want of what they need to start.
    crashes: int
    #: By kind: strikes, and mischief of listeners and proxy.
    faults: Mapping[str, int]
    #: Attempts under way at kills and freezes of their worker.
    hit_in_flight: int
    #: Why it is not ok, one sentence each.
    reasons: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept, and enough happened to say so."""
        return not self.reasons


@dataclass(slots=True)
class _Found:
    """Deliveries by what is wrong with them."""

    lost: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    ambiguous: list[str] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


def judge(books: Books) -> Verdict:
    """Compare the books and say which promises were kept."""
    found = _Found()
    _ends(books, found)
    _orders(books, found)
    _repeats(books, found)
    faults = Counter(fault.kind for fault in books.faults)
    faults.update(each.mischief for each in _requests(books) if each.mischief is not None)
    hits = _in_flight(books)
    allowed = len(hits) + _unknowable(books, hits)
    aggregates = len({each.aggregate for each in books.promised})
    return Verdict(
        promised=len(books.promised),
        aggregates=aggregates,
        arrivals=len(books.arrivals),
        effects=sum(each.done_place is not None for each in books.arrivals),
        lost=len(found.lost),
        foreign=len(found.foreign),
        order_violations=len(found.disorder),
        frozen_reorders=len(found.frozen),
        double_effects=len(found.doubled),
        non_idempotent_repeats=len(found.repeated),
        changed_bodies=len(found.changed),
        open=len(found.open),
        waiting=len(found.waiting),
        ambiguous=len(found.ambiguous),
        ambiguous_allowed=allowed,
        parked=len(found.parked),
        crashes=faults[CRASH],
        faults=dict(sorted(faults.items())),
        hit_in_flight=len(hits),
        reasons=(*_broken(found, allowed), *_crashed(books), *_too_little(books, faults, len(hits), aggregates)),
    )


def _broken(found: _Found, allowed: int) -> Iterable[str]:
    for named, what in (
        (found.lost, "lost"),
        (found.foreign, "had an effect nobody promised"),
        (found.disorder, "out of order"),
        (found.doubled, "had more than one effect"),
        (found.repeated, "were repeated although they must not be"),
        (found.changed, "changed their bytes between attempts"),
        (found.open, "did not end"),
        (found.parked, "were parked although no listener refused them"),
    ):
        if named:
            yield f"{len(named)} {what}: {', '.join(named[:NAMED])}"
    if len(found.ambiguous) > allowed:
        yield f"{len(found.ambiguous)} ambiguous, {allowed} can be: {', '.join(found.ambiguous[:NAMED])}"


def _crashed(books: Books) -> Iterable[str]:
    for fault in books.faults:
        if fault.kind == CRASH:
            yield f"{fault.target} ended by itself: its log says why"


def _too_little(books: Books, faults: Mapping[str, int], hits: int, aggregates: int) -> Iterable[str]:
    demands = books.demands
    for kind, least in demands.faults.items():
        if faults.get(kind, 0) < least:
            yield f"too few hits: {kind} {faults.get(kind, 0)} times, at least {least}"
    for name, seen, least in (
        ("attempts in flight at kills and freezes", hits, demands.hit_in_flight),
        ("promised deliveries", len(books.promised), demands.deliveries),
        ("aggregates", aggregates, demands.aggregates),
    ):
        if seen < least:
            yield f"too few hits: {seen} {name}, at least {least}"


def _ends(books: Books, found: _Found) -> None:
    """Sort every promised delivery by how it ended."""
    done = {each.delivery_id for each in books.arrivals if each.done_place is not None}
    promised = {each.delivery_id for each in books.promised}
    found.foreign += sorted(done - promised)
    stuck: dict[tuple[str, str], int] = {}
    for each in sorted(books.promised, key=lambda one: one.sequence):
        state = books.states.get(each.delivery_id)
        lane = (each.destination, each.aggregate)
        if state == ACKNOWLEDGED:
            if each.delivery_id not in done:
                found.lost.append(each.delivery_id)
        elif state == AMBIGUOUS or state in PARKED:
            (found.ambiguous if state == AMBIGUOUS else found.parked).append(each.delivery_id)
            stuck.setdefault(lane, each.sequence)
        elif state is None and each.delivery_id not in done and not books.unread.get(each.destination, 0):
            # Read by its group, done by nobody, known to nobody; behind a halted head its row alone knows it.
            (found.waiting if _halts(books, each, stuck) else found.lost).append(each.delivery_id)
        else:
            (found.waiting if _halts(books, each, stuck) else found.open).append(each.delivery_id)


def _halts(books: Books, each: Promised, stuck: Mapping[tuple[str, str], int]) -> bool:
    destination = books.destinations[each.destination]
    return destination.on_unsettled == "halt" and (each.destination, each.aggregate) in stuck


@dataclass(slots=True)
class _Lane:
    """One aggregate at one destination, as its ledger goes on."""

    highest: int = 0
    done: set[int] = field(default_factory=set)


def _orders(books: Books, found: _Found) -> None:
    """Find effects after a later one, and requests that came before their predecessor was done; each delivery once."""
    place_of = {(each.destination, each.aggregate, each.sequence): each.delivery_id for each in books.promised}
    lanes: dict[tuple[str, str], _Lane] = defaultdict(_Lane)
    frozen = [fault for fault in books.faults if fault.kind == FREEZE and fault.until is not None]
    seen: set[str] = set()
    for _, is_effect, each in sorted(_events(books.arrivals), key=lambda event: event[:2]):
        lane = lanes[each.destination, each.aggregate]
        if is_effect:
            is_wrong = each.sequence < lane.highest
            lane.highest = max(lane.highest, each.sequence)
            lane.done.add(each.sequence)
        else:
            before = place_of.get((each.destination, each.aggregate, each.sequence - 1))
            is_wrong = before is not None and each.sequence - 1 not in lane.done and not _was_passed(books, before)
        if is_wrong and each.delivery_id not in seen:
            seen.add(each.delivery_id)
            explained = any(_wakes_up_with(fault, each) for fault in frozen)
            (found.frozen if explained else found.disorder).append(each.delivery_id)


def _events(arrivals: Sequence[Arrival]) -> Iterable[tuple[int, bool, Arrival]]:
    for each in arrivals:
        yield each.place, False, each
        if each.done_place is not None:
            yield each.done_place, True, each


def _was_passed(books: Books, delivery: str) -> bool:
    """Whether a lane may have gone on behind it without its effect: it ended visibly otherwise."""
    state = books.states.get(delivery)
    return state == AMBIGUOUS or state in PARKED


def _wakes_up_with(freeze: Fault, each: Arrival) -> bool:
    """Whether a request may have been on a frozen worker's lips: it came as that worker woke up, not signed meanwhile."""
    until = freeze.until or freeze.at
    came = 0 <= each.at - until <= WAKES_WITHIN_S
    return came and not freeze.at + SIGNED_TO_S < each.signed_at < until - SIGNED_TO_S


def _repeats(books: Books, found: _Found) -> None:
    """Find second effects and changed bytes."""
    effects = Counter(each.delivery_id for each in books.arrivals if each.done_place is not None)
    profiles = {each.delivery_id: books.destinations[each.destination].profile for each in books.arrivals}
    for delivery, times in effects.items():
        if times > 1:
            (found.repeated if profiles[delivery] == NON_IDEMPOTENT else found.doubled).append(delivery)
    places: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    bodies: dict[str, set[str]] = defaultdict(set)
    for each in books.arrivals:
        bodies[each.delivery_id].add(each.body)
        if each.done_place is not None:
            places[each.destination, each.aggregate, each.sequence].add(each.delivery_id)
    found.doubled += [max(ids) for ids in places.values() if len(ids) > 1]
    found.changed += [delivery for delivery, digests in bodies.items() if len(digests) > 1]


def _in_flight(books: Books) -> list[Exchange]:
    """Return the exchanges under way when their worker was killed or frozen, each once."""
    hits = [fault for fault in books.faults if fault.kind in HITS]
    return [each for each in books.exchanges if any(_is_hit(fault, each) for fault in hits)]


def _is_hit(fault: Fault, each: Exchange) -> bool:
    return each.port in fault.ports and each.at <= fault.at and (each.until is None or each.until >= fault.at)


def _requests(books: Books) -> Iterable[Arrival | Exchange]:
    """Yield every request as listener and proxy saw it."""
    yield from books.arrivals
    yield from books.exchanges


def _unknowable(books: Books, hits: Sequence[Exchange]) -> int:
    """Count deliveries whose answer was lost on the way, where nothing is repeated blindly; those hit count already."""
    counted = {each.delivery_id for each in hits}
    careful = {name for name, each in books.destinations.items() if each.profile not in RETRIES_BLINDLY}
    lost = {
        each.delivery_id for each in _requests(books) if each.destination in careful and each.mischief in MAY_HAVE_ACTED
    }
    return len(lost - counted)
