"""What attempts and rows of one partition come to: settle at once, try again, or move through a row.

The one rule: Kafka hears of a move only after PostgreSQL has it, unless the move is a first acknowledgement, which
needs no row because it leaves nothing to do. A delivery that has a row, or whose row is being written, settles
only through it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.names import (
    commands_topic,
    dead_letters_topic,
    deliveries_topic,
    outcomes_topic,
    state_topic,
)
from waybill.contracts.states import BLOCKING, Move, State
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.freshness import second_after
from waybill.delivery.core.lanes import Held, Item, Lane
from waybill.delivery.core.ownership import identify
from waybill.delivery.core.records import Event, Try, millis
from waybill.delivery.core.retry import UNREADABLE, Await, End, History, decide, expired, moved
from waybill.delivery.core.stored import unpack_record
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.resolutions.resolver import Resolver
from waybill.delivery.rows import Rows
from waybill.delivery.store import Found, Owned, RowImage, RowMove, Unpublished
from waybill.infra.kafka import Outgoing
from waybill.infra.log import get_logger
from waybill.kernel.errors import InvariantBroken

__all__ = ["Settler", "Topics", "history_of", "untried"]

_NO_BODY: Final = ""


@dataclass(frozen=True, slots=True)
class Topics:
    """Where a partition's records come from and go to."""

    commands: str
    outcomes: str
    states: str
    dead_letters: str
    deliveries: str

    @classmethod
    def of(cls, desk: Desk) -> "Topics":
        """Return a tenant's topics, and the one its deliveries to a destination are handed over in."""
        of, own = desk.tenant, deliveries_topic(desk.tenant, desk.target.name)
        return cls(commands_topic(of), outcomes_topic(of), state_topic(of), dead_letters_topic(of), own)

    def outgoing(
        self, partition: int, aggregate: str, delivery_id: str, pending: tuple[bytes, bytes, bytes | None]
    ) -> tuple[Outgoing, ...]:
        """Return the records that say what a row has pending."""
        outcome, state, letter = pending
        key = aggregate.encode()
        records = (
            Outgoing(self.outcomes, partition, key, outcome),
            Outgoing(self.states, partition, delivery_id.encode(), state),
        )
        return records if letter is None else (*records, Outgoing(self.dead_letters, partition, key, letter))

    def of_row(
        self, partition: int, aggregate: str, row: RowImage | RowMove | Unpublished, placed: Callable[[int], None]
    ) -> tuple[Outgoing, ...]:
        """Return everything a row has pending; `placed` is told where what it hands over comes to lie."""
        if row.pending_outcome is None or row.pending_state is None:
            raise InvariantBroken("a move without an outcome")
        pending = (row.pending_outcome, row.pending_state, row.pending_dead_letter)
        records = self.outgoing(partition, aggregate, row.delivery_id, pending)
        if row.pending_envelope is None:
            return records
        key, headers, value = unpack_record(row.pending_envelope)
        return (Outgoing(self.deliveries, partition, key or b"", value or b"", headers, placed), *records)


class Settler:
    """Decides and records for one owner; runs on the loop."""

    def __init__(self, desk: Desk, owner: Owner, topics: Topics) -> None:
        self._desk, self._owner, self.topics = desk, owner, topics
        self.rows = Rows(self, desk.tools)
        self.resolver = Resolver(desk, owner, self.identify)
        #: From here on, whoever tries again what was tried in memory signs with another timestamp.
        self.fresh_from = datetime.fromtimestamp(0, UTC)
        self._log = get_logger("delivery").bind(
            tenant=desk.tenant, destination=desk.target.name, partition=owner.partition
        )

    # Who writes the rows asks this

    @property
    def gone(self) -> bool:
        """Whether the partition is somebody else's."""
        return self._owner.gone

    @property
    def owned(self) -> Owned:
        """The assignment under which rows are written."""
        return self._owner.owned

    def refused(self) -> None:
        """Give the partition up: its epoch is not the newest."""
        self._owner.refused()

    # Attempts

    def identify(self, item: Item) -> None:
        """Look into a record once."""
        owned = self._owner.owned
        topic, partition = self.topics.commands, owned.partition
        identify(item, tenant=owned.tenant, destination=owned.destination, topic=topic, partition=partition)

    def finished(self, lane: Lane, item: Item, verdict: Verdict, attempt: Try) -> None:
        """Record what an attempt came to and move on."""
        desk, owner = self._desk, self._owner
        desk.count(owner, verdict, item)
        if not verdict.is_proven or item.held is not Held.MEMORY:
            self._finish_slowly(lane, item, verdict, attempt)
            return
        item.attempts = attempt.number
        outcome, state = desk.target.recorder.acknowledged(item, owner.place, attempt, verdict)
        partition, topics = owner.partition, self.topics
        desk.committer.add(
            owner,
            (
                Outgoing(topics.outcomes, partition, item.aggregate.encode(), outcome),
                Outgoing(topics.states, partition, _id(item).encode(), state),
            ),
        )
        owner.lanes.settle(lane, item)
        owner.pump()

    def _finish_slowly(self, lane: Lane, item: Item, verdict: Verdict, attempt: Try) -> None:
        if item.held is Held.REPEAT:
            item.attempts = attempt.number
            self.audit(item, Event("repeat", item.state, False, attempt, verdict))
            self._owner.lanes.repeat_done(lane, item)
            self._owner.pump()
            return
        now = self._desk.tools.clock.now()
        fresh_from = second_after(attempt.started_ms)
        target, history = self._desk.target, history_of(item, now, fresh_from)
        decision = decide(target.config.retry, target.rule_for(item), history, verdict, now)
        item.attempts, item.expected = attempt.number, verdict.expected_sequence
        item.throttled += verdict.code is ErrorCode.RATE_LIMIT
        item.sent = item.sent or verdict.phase is not Phase.BEFORE_SENDING
        item.may_have_acted = item.may_have_acted or verdict.may_have_acted
        item.next_due = None if isinstance(decision, End) else decision.due
        if isinstance(decision, End):
            self.end(lane, item, decision, attempt, verdict)
        elif isinstance(decision, Await):
            self.end(lane, item, End(move=Move.ACCEPT, code=None, detail=verdict.detail), attempt, verdict)
        elif decision.is_hot:
            self.fresh_from = max(self.fresh_from, fresh_from)
            self.audit(item, Event("attempt", item.state, False, attempt, verdict))
            self._desk.later(decision.due, self._owner, lane)
        else:
            retry = End(move=Move.RETRY, code=verdict.code, detail=verdict.detail)
            self.end(lane, item, retry, attempt, verdict)

    def expire(self, lane: Lane | None, item: Item, now: datetime) -> None:
        """End a delivery whose time is over; it is not sent. Without a lane its row is moved where it stands."""
        self.end(lane, item, expired(sent=item.sent), untried(now), None)

    def poisoned(self, lane: Lane, item: Item) -> None:
        """End a delivery that can never be sent: failed VALIDATION in its lane, and a dead letter."""
        now = self._desk.tools.clock.now()
        item.expires_at = item.expires_at or now
        self._desk.refused(item)
        self.end(lane, item, UNREADABLE, untried(now), None)

    def end(self, lane: Lane | None, item: Item, end: End, attempt: Try, verdict: Verdict | None) -> None:
        """Move an item and bring the move into its row; one that has none gets it now."""
        before = item.state
        item.state = moved(before, end.move)
        item.version += 1
        item.code, item.detail = end.code, end.detail
        recorder, place, at = self._desk.target.recorder, self._owner.place, attempt.ended_ms
        event = Event("attempt" if attempt.number else "transition", before, True, attempt, verdict)
        letter = recorder.dead_letter(item, place, end.detail or "", at) if end is UNREADABLE else None
        item.pending = (recorder.outcome(item, place, event), recorder.state(item, place, at), letter)
        item.envelope, item.handed_to = self._desk.target.envelope(item, attempt, verdict), None
        if item.held is not Held.MEMORY:
            self.rows.move(lane, item)
        elif lane is not None:
            self.store(lane, self._owner.lanes.to_rows(lane))
        else:
            raise InvariantBroken("a delivery in memory has a lane")

    # Rows

    def store(self, lane: Lane, items: Sequence[Item]) -> None:
        """Write rows for items of a lane, oldest first."""
        for item in items:
            self.identify(item)
        self.rows.insert(lane, items, self._desk.tools.clock.now())

    def row_written(self, lane: Lane, item: Item, image: RowImage, found: Found | None) -> None:
        """Go on after an insert."""
        owner = self._owner
        if owner.gone:
            return
        is_repeat = found is not None and (found.record_offset, found.partition) != (item.offset, owner.partition)
        is_head = lane.head is item
        owner.remember(image.delivery_id)
        owner.lanes.stored(lane, item, is_repeat=is_repeat)
        if found is not None and is_repeat:
            if not is_head:
                self._audit_repeat(item, found)
            elif image.version > 0:
                self._audit_repeat(item, found)
                owner.lanes.repeat_done(lane, item)
        elif image.version > 0:
            self._publish(lane if is_head else None, item, image)
        owner.pump()

    def row_moved(self, lane: Lane | None, item: Item, move: RowMove) -> None:
        """Go on after a move."""
        if self._owner.gone:
            return
        if item.held is not Held.REPEAT:
            self._publish(lane, item, move)
        elif lane is not None:
            self._owner.lanes.repeat_done(lane, item)
        self._owner.pump()

    def rows_fed(self, lane: Lane, items: Sequence[Item], *, ended: Item | None) -> None:
        """Go on with a lane's next rows, or behind the one that ended and still holds it."""
        if self._owner.gone:
            return
        if ended is not None and not items and self.resolver.goes_on(ended):
            self.resolver.row_ended(lane, ended)
            return
        self._owner.lanes.fed(lane, items, halted_at=None if ended is None else ended.sequence)
        self._owner.pump()

    def _publish(self, lane: Lane | None, item: Item, row: RowImage | RowMove) -> None:
        """Tell Kafka what a row says; a lane whose head ended goes on at once.

        Any other waits until Kafka has it: a row remembers one unsaid move, and the next would take its place.
        """
        failpoints, rows, owner = self._desk.tools.failpoints, self.rows, self._owner
        places: list[int] = []
        failpoints("before_publish")
        again = _untold(lane) if lane is not None and item.state in BLOCKING else None

        def done() -> None:
            failpoints("after_publish")
            item.handed_to = places[-1] if places else None
            rows.published(row.delivery_id, row.version, item.handed_to)
            if again is None or owner.gone:
                return
            again.unsaid = False
            if item.expected is not None and item.expected < item.sequence:
                self.resolver.retell(again, item, item.expected)
            else:
                self._desk.offer(owner, again)

        records = self.topics.of_row(owner.partition, item.aggregate, row, places.append)
        self._desk.committer.add(owner, records, done)
        if lane is not None and item.state is State.ACKNOWLEDGED:
            owner.lanes.row_closed(lane, item)
        elif lane is not None and again is None and self.resolver.goes_on(item):
            self.resolver.head_ended(lane, item)
        elif lane is not None and again is None:
            self._log.warning("lane.halted", delivery_id=item.delivery_id, state=item.state, code=item.code)
            owner.lanes.row_halted(lane, item)

    def audit(self, item: Item, event: Event) -> None:
        """Record a fact about an item that moves nothing."""
        outcome = self._desk.target.recorder.outcome(item, self._owner.place, event)
        record = Outgoing(self.topics.outcomes, self._owner.partition, item.aggregate.encode(), outcome)
        self._desk.committer.add(self._owner, (record,))

    def _audit_repeat(self, item: Item, found: Found) -> None:
        """Record that the relay offered again what a row holds: nothing is sent, nothing moves (AT-2)."""
        _stand_as(item, found)
        self.audit(item, Event("repeat", item.state, False, untried(self._desk.tools.clock.now()), None))


def _untold(lane: Lane) -> Lane:
    """Let a lane wait until Kafka has its head's move."""
    lane.unsaid = True
    return lane


def _stand_as(item: Item, found: Found) -> None:
    """Let a repeat stand where the row stands that holds its delivery."""
    item.state, item.version = State(found.state), found.version
    item.code, item.detail = None, "row_exists"


def _id(item: Item) -> str:
    if item.delivery_id is None:
        raise InvariantBroken("settled a delivery that was not looked into")
    return item.delivery_id


def history_of(item: Item, now: datetime, fresh_from: datetime) -> History:
    """Return what is known of a delivery's earlier tries."""
    return History(
        delivery_id=_id(item),
        attempts=item.attempts - item.throttled,
        sent=item.sent,
        may_have_acted=item.may_have_acted,
        expires_at=item.expires_at or now,
        is_row=item.held is not Held.MEMORY,
        sends=item.sends,
        first_sent_at=item.first_sent_at,
        fresh_from=fresh_from,
    )


def untried(now: datetime) -> Try:
    """Return what is recorded where nothing was tried."""
    at = millis(now)
    return Try(0, at, at, _NO_BODY)
