"""The laws of the engine, checked while a run goes on and when it has come to rest.

- I1 a committed offset passes only what is settled, stored as a row, or another's;
- I2 one attempt of an aggregate is in flight, in a process and over all owners within the lease; none starts after
  its owner's lease has run out, or after its successor began;
- I3 an attempt of n+1 starts only when everything before it in its aggregate is acknowledged;
- I6 nothing of a former owner lands: no offset after its successor read it, no row under an older epoch;
- I8 state versions rise by one and follow the table;
- I9 every command ends in one terminal outcome, or is visibly open; what is acknowledged was done, or people said so;
- I11 all attempts of a delivery have the same bytes;
- I12 what is reported as never sent was not;
- I13 what is handed over in Kafka and what is said of it are one (`handover.law`).

I4 (it always comes to rest), I5 and I10 (what owners hold in memory) are looked at by `inspection`. A law for what the
engine learns next - intents, decisions, results, other profiles - is a method here and an event that calls it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from uuid import UUID

from waybill.contracts.codec import DEAD_LETTER, OUTCOME, TASK_STATE, AvroReader, schema_text
from waybill.contracts.envelope import GapResolution, Resolution
from waybill.contracts.envelope_reader import parse
from waybill.contracts.fabric import Profile, RepeatBound
from waybill.contracts.names import dead_letters_topic, outcomes_topic, state_topic
from waybill.contracts.states import BY_PEOPLE, TRANSITIONS, State
from waybill.contracts.status_query import Said
from waybill.delivery.core.gaps import CANCELLED, SUPERSEDED
from waybill.delivery.gate import LEASE_S
from waybill.kernel.ids import Tenant
from waybill.simulator.broker import Committed, Place, Transaction
from waybill.simulator.database import Database
from waybill.simulator.groups import Membership
from waybill.simulator.handover.law import HandOvers
from waybill.simulator.orders import Order, Orders
from waybill.simulator.tables.rows import Key
from waybill.simulator.trace import Trace

__all__ = ["BOUND", "NOT_DONE", "SCHEMAS", "Laws", "Violation", "state_reader"]

#: Registry ids of the records, as workers write them.
SCHEMAS: Final = {1: OUTCOME, 2: TASK_STATE, 3: DEAD_LETTER}
_ALLOWED: Final = frozenset((before, after) for (before, _), after in TRANSITIONS.items())
#: From here a delivery goes on by itself: an ambiguous one is asked about, of a delivered one a result is awaited.
_OPEN: Final = frozenset({"queued", "delivered", "retrying", "ambiguous"})
Delivery = tuple[str, str]
_DONE: Final = 200
#: Refused before it was looked at: nothing is to be remembered.
_UNSEEN: Final = 429
#: What a `bounded_deduplication` destination of a run remembers.
BOUND: Final = RepeatBound(max_attempts=3, max_age_s=6.0)
#: Statuses by which a `non_idempotent` one says that it did nothing.
NOT_DONE: Final = frozenset({429, 503})
#: From a worker's last look at the age of a delivery to the first byte.
_LATE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that was broken."""

    law: str
    at_s: float
    what: str

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.law} broken at {self.at_s:.3f}: {self.what}"


@dataclass(slots=True)
class _Attempts:
    """What was seen of one delivery's attempts."""

    body: bytes = b""
    is_acknowledged: bool = False
    was_sent: bool = False
    #: A gap resolution that lists it was acknowledged; the listener heard one; it said that it will never come.
    is_resolved: bool = False
    is_heard: bool = False
    is_over: bool = False
    #: Those of which a byte left, and when the first of them began.
    sends: int = 0
    first_at: float = 0.0
    #: Those that may have acted, by all that workers got to see.
    doubts: int = 0


@dataclass(slots=True)
class _Ownership:
    """Who owned a partition of a destination, as the database took it."""

    takes: dict[UUID, int] = field(default_factory=dict)
    #: Process → number of its last take.
    by_process: dict[str, int] = field(default_factory=dict)
    #: The highest number under which an attempt was started.
    attempted: int = 0
    #: Process → when the last transaction began that carried the partition for it.
    leases: dict[str, float] = field(default_factory=dict)


def state_reader() -> AvroReader:
    """Return what reads the states that workers write."""
    return _reader(TASK_STATE)


@cache
def _reader(name: str) -> AvroReader:
    return AvroReader(name, lambda number: schema_text(SCHEMAS[number]))


class AttemptLaws:
    """What must hold of every attempt and every effect."""

    def __init__(self, tenant: Tenant, orders: Orders, trace: Trace) -> None:
        self.violations: list[Violation] = []
        #: The database lost the bytes of gap resolutions: they are told again in the words of now.
        self.was_set_back = False
        self.now: Callable[[], float] = lambda: 0.0
        self.attempts = 0
        #: What each destination can bear.
        self.profiles: dict[str, Profile] = {}
        #: How far wall clocks were apart at most.
        self.skew_s = 0.0
        self.effects: dict[Delivery, None] = {}
        self._tenant, self._orders, self._trace = tenant, orders, trace
        self._attempts: dict[Delivery, _Attempts] = defaultdict(_Attempts)
        #: Gap resolutions that were sent.
        self._tellings: dict[Delivery, GapResolution] = {}
        #: Destination and aggregate → who has an attempt under way; those of the dead stay.
        self._inflight: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._owners: dict[Key, _Ownership] = defaultdict(_Ownership)

    def broken(self, law: str, what: str) -> None:
        """Note a broken law."""
        self._trace("LAW", f"{law}: {what}")
        self.violations.append(Violation(law, self.now(), what))

    def attempt_began(self, process: str, destination: str, delivery_id: str, body: bytes) -> None:
        """Check I2, I3 and I11."""
        self.attempts += 1
        order = self._orders.delivery(destination, delivery_id)
        is_telling = order is None
        if order is None:
            order = self._telling(destination, delivery_id, body)
        if order is None:
            self.broken("I9", f"{delivery_id} was sent to {destination}, and nobody asked for it")
            return
        self._trace(process, f"{'tells the end of' if is_telling else 'attempts'} {order.told(destination)}")
        seen = self._attempts[destination, delivery_id]
        if seen.body not in {b"", body} and not (is_telling and self.was_set_back):
            self.broken("I11", f"{order.told(destination)} was sent with other bytes")
        if seen.is_over:
            self.broken("I3", f"{order.told(destination)} is attempted after its listener was told that it never comes")
        seen.body = body
        if not is_telling:  # every listener bears hearing of an end again
            self._check_repeat(destination, order, seen)
        self._check_owner(process, destination, order)
        self._check_inflight(process, destination, order)
        for earlier in self._orders.before(destination, order):
            before = self._attempts[destination, earlier.delivery_id(destination)]
            if not (before.is_acknowledged or before.is_resolved):
                self.broken("I3", f"{order.told(destination)} is attempted before #{earlier.sequences[destination]}")
                return

    def _telling(self, destination: str, resolution_id: str, body: bytes) -> Order | None:
        """Note what a gap resolution says; return the first delivery it lists."""
        found = parse(body)
        if not isinstance(found, GapResolution) or str(found.resolution_id) != resolution_id:
            return None
        listed = [(entry, self._orders.delivery(destination, str(entry.delivery_id))) for entry in found.entries]
        for entry, order in listed:
            if order is None or order.sequences[destination] != entry.sequence or order.aggregate != found.aggregate:
                self.broken("I9", f"a resolution of {found.aggregate} lists #{entry.sequence}, which is not so")
                return None
            if entry.resolution is Resolution.FINAL:
                self._attempts[destination, str(entry.delivery_id)].is_over = True
        self._tellings[destination, resolution_id] = found
        return listed[0][1]

    def _told_of(self, destination: str, resolution_id: str) -> Iterator[_Attempts]:
        """Yield what is known of the deliveries a gap resolution lists."""
        for entry in self._tellings[destination, resolution_id].entries:
            yield self._attempts[destination, str(entry.delivery_id)]

    def _check_repeat(self, destination: str, order: Order, seen: _Attempts) -> None:
        """Check I7: what a destination cannot bear is not sent again."""
        profile = self.profiles.get(destination, Profile.DURABLE_IDEMPOTENT)
        if profile is Profile.NON_IDEMPOTENT and seen.doubts:
            self.broken("I7", f"{order.told(destination)} is attempted although it may have been done")
        if profile is not Profile.BOUNDED_DEDUPLICATION or not seen.sends:
            return
        if seen.sends >= BOUND.max_attempts:
            self.broken("I7", f"{order.told(destination)} is attempted more often than it is remembered")
        if self.now() - seen.first_at > BOUND.max_age_s + self.skew_s + _LATE_S:
            self.broken("I7", f"{order.told(destination)} is attempted after it is remembered")

    def _check_owner(self, process: str, destination: str, order: Order) -> None:
        owners = self._owners[self._tenant, destination, order.partition]
        number = owners.by_process.get(process, 0)
        if number < owners.attempted:
            self.broken("I2", f"{process} attempts {order.told(destination)} after its successor began")
        owners.attempted = max(owners.attempted, number)
        if self.now() >= owners.leases.get(process, -LEASE_S) + LEASE_S:
            self.broken("I2", f"{process} attempts {order.told(destination)} without a lease")

    def _check_inflight(self, process: str, destination: str, order: Order) -> None:
        inflight = self._inflight[destination, order.aggregate]
        leases = self._owners[self._tenant, destination, order.partition].leases
        for other in inflight:
            if other == process:
                self.broken("I2", f"{process} has two attempts of {order.aggregate} at {destination} in flight")
            elif self.now() < leases.get(other, -LEASE_S) + LEASE_S:
                self.broken(
                    "I2", f"{process} attempts {order.told(destination)} within the lease of {other}, in flight"
                )
        inflight[process] = None

    def attempt_ended(self, process: str, destination: str, delivery_id: str, status: int | None) -> None:
        """Note what a worker got to see."""
        is_good = status == _DONE
        order = self._orders.delivery(destination, delivery_id)
        if (destination, delivery_id) in self._tellings:
            self._inflight[destination, self._tellings[destination, delivery_id].aggregate].pop(process, None)
            for listed in self._told_of(destination, delivery_id):
                listed.is_resolved |= is_good
        elif order is not None:
            self._inflight[destination, order.aggregate].pop(process, None)
            seen = self._attempts[destination, delivery_id]
            seen.is_acknowledged |= is_good
            seen.doubts -= status in NOT_DONE
            seen.sends -= status == _UNSEEN
            self._trace(
                process, f"{'acknowledged' if is_good else 'no answer or a refusal:'} {order.told(destination)}"
            )

    def told(self, destination: str, delivery_id: str, said: Said) -> None:
        """Note what a status query was answered with."""
        seen = self._attempts[destination, delivery_id]
        seen.is_acknowledged |= said is Said.DONE
        if said is Said.NOT_DONE:
            seen.doubts = 0

    def byte_left(self, destination: str, delivery_id: str) -> None:
        """Note for I7 and I12."""
        seen = self._attempts[destination, delivery_id]
        if not seen.sends:
            seen.first_at = self.now()
        seen.was_sent = True
        seen.sends += 1
        seen.doubts += 1

    def effect(self, destination: str, delivery_id: str) -> None:
        """Check the order of effects, and that there is one: what a listener that checks nothing gets to see."""
        if (destination, delivery_id) in self._tellings:
            for listed in self._told_of(destination, delivery_id):
                listed.is_heard = True
            return
        is_second = (destination, delivery_id) in self.effects
        self.effects[destination, delivery_id] = None
        order = self._orders.delivery(destination, delivery_id)
        if order is None:
            return
        if is_second:
            self.broken("I7", f"{order.told(destination)} took effect twice")
        self._trace(destination, f"did {order.told(destination)}")
        for earlier in self._orders.before(destination, order):
            before = (destination, earlier.delivery_id(destination))
            if before not in self.effects and not self._attempts[before].is_heard:
                self.broken("I3", f"{order.told(destination)} took effect before #{earlier.sequences[destination]}")
                return


class Laws(AttemptLaws):
    """Sees everything; says what must not be."""

    def __init__(self, tenant: Tenant, orders: Orders, database: Database, trace: Trace) -> None:
        super().__init__(tenant, orders, trace)
        self._database = database
        #: The newest published state of each delivery.
        self.states: dict[Delivery, dict[str, Any]] = {}
        self.letters: dict[str, dict[str, Any]] = {}
        #: Kinds of the outcomes of each delivery, in the order of commits.
        self.audited: dict[Delivery, list[str]] = defaultdict(list)
        #: Delivery → outcome id → (version, before, after).
        self.moves: dict[Delivery, dict[str, tuple[int, str, str]]] = defaultdict(dict)
        #: The member that last looked at an offset while the partition was its own.
        self._lookers: dict[Place, str] = {}
        self.handed = HandOvers(tenant, orders, self.broken)
        self._topics = {
            outcomes_topic(tenant): (_reader(OUTCOME), self._outcome),
            state_topic(tenant): (_reader(TASK_STATE), self._state),
            dead_letters_topic(tenant): (_reader(DEAD_LETTER), self._letter),
        }

    # Ownership

    def position_told(self, process: str, membership: Membership, partition: int, found: Committed) -> None:
        """Note that an owner was told where to begin: from here on nobody else moves the offset."""
        self._trace(process, f"looks at {found[0]}, the offset of [{partition}]")
        self._lookers[membership.group, partition] = membership.member

    def taken(self, key: Key, epoch: UUID, owner: str) -> None:
        """Note a new owner."""
        owners = self._owners[key]
        owners.takes[epoch] = owners.by_process[owner] = len(owners.takes) + 1

    def written(self, key: Key, epoch: UUID, newest: UUID | None) -> None:
        """Check I6 in the database."""
        if epoch != newest:
            self.broken("I6", f"a row of {key[1]}[{key[2]}] was written by a former owner")

    # Transactions

    def transaction(self, transaction: Transaction, before: dict[Place, Committed]) -> None:
        """Check what a committed transaction says."""
        carried = {move.partition for _, move in transaction.offsets}
        outcomes: list[dict[str, Any]] = []
        for record in transaction.records:
            if record.partition not in carried:
                self.broken("I6", f"{transaction.producer} wrote for [{record.partition}] without its offset")
            if self.handed.destination_of(record.topic) is None:
                reader, take = self._topics[record.topic]
                take(found := reader.decode(record.value))
                outcomes.extend([found] if take == self._outcome else [])
        self.handed.committed(transaction.records, outcomes, self.states)
        for group, move in transaction.offsets:
            assert isinstance(move.group_metadata, Membership)
            looker = self._lookers.get((group, move.partition), move.group_metadata.member)
            if looker != move.group_metadata.member:
                self.broken("I6", f"the offset of {group}[{move.partition}] by a former owner landed")
            destination = self._orders.destination_of(group)
            if destination is not None:
                stamp = transaction.stamp
                self._owners[self._tenant, destination, move.partition].leases[stamp.by] = stamp.began
            self._check_offset(group, move.partition, before[group, move.partition], (move.offset, move.metadata))

    def _check_offset(self, group: str, partition: int, before: Committed, after: Committed) -> None:
        destination = self._orders.destination_of(group)
        if after[0] < before[0]:
            self.broken("I1", f"the offset of {group}[{partition}] went back from {before[0]} to {after[0]}")
        for order in self._orders.between(partition, before[0], after[0]):
            if destination is None:
                self._check_intake(order)
            elif destination in order.sequences and not self._is_safe(destination, order):
                self.broken("I1", f"the offset of {group}[{partition}] passed {order.told(destination)}")

    def _is_safe(self, destination: str, order: Order) -> bool:
        delivery_id = order.delivery_id(destination)
        state = self.states.get((destination, delivery_id))
        settled = state is not None and state["state"] == State.ACKNOWLEDGED
        return settled or f"{destination}/{delivery_id}" in self._database.stored

    def _check_intake(self, order: Order) -> None:
        if order.is_unroutable and not any(
            (letter["partition"], letter["offset"]) == (order.partition, order.offset)
            for letter in self.letters.values()
        ):
            self.broken("I1", f"intake passed [{order.partition}]@{order.offset} without a dead letter")

    def _outcome(self, outcome: dict[str, Any]) -> None:
        delivery = (outcome["destination"], outcome["delivery_id"])
        self.audited[delivery].append(outcome["kind"])
        if outcome["outcome_id"] is None:
            return
        account = (outcome["version"], outcome["state_before"], outcome["state_after"])
        known = self.moves[delivery].setdefault(outcome["outcome_id"], account)
        if known != account and self.was_set_back and self._orders.delivery(*delivery) is None:
            return  # a gap resolution whose row was lost
        if known != account:
            self.broken("I8", f"{self._told(delivery)}: version {account[0]} is told twice: {known} and {account}")
        elif (State(account[1]), State(account[2])) not in _ALLOWED:
            self.broken("I8", f"{self._told(delivery)}: no move from {account[1]} to {account[2]}")

    def _state(self, state: dict[str, Any]) -> None:
        delivery = (state["destination"], state["delivery_id"])
        known = self.states.get(delivery)
        if known is None or state["version"] >= known["version"]:
            self.states[delivery] = state

    def _letter(self, letter: dict[str, Any]) -> None:
        self.letters[letter["dead_letter_id"]] = letter
        delivery = (letter["destination"], letter["delivery_id"])
        if letter["cause"] == "unknown_destination" and self._orders.delivery(*delivery) is not None:
            self.broken("I9", f"{self._told(delivery)} was buried although somebody can own it")

    # At rest

    def check_rest(self) -> None:
        """Check what must hold when nothing is left to do."""
        for destination, order in self._orders.deliveries():
            self._check_end(destination, order)
        for delivery, moves in self.moves.items():
            versions = sorted(account[0] for account in moves.values())
            if versions != list(range(1, len(versions) + 1)):
                self.broken("I8", f"{self._told(delivery)} has versions {versions}")

    def _check_end(self, destination: str, order: Order) -> None:
        delivery = (destination, order.delivery_id(destination))
        state, row = self.states.get(delivery), self._database.find(*delivery)
        told = order.told(destination)
        if state is None:
            if row is None or not row["blocks"]:
                self.broken("I9", f"{told} is lost: neither outcome nor open row")
            return
        if row is not None and row["version"] != state["version"]:
            self.broken("I9", f"{told} is {row['state']} v{row['version']} in its row and {state['state']} outside")
        is_proven = state["state"] == State.ACKNOWLEDGED and state["detail"] != BY_PEOPLE
        if is_proven and delivery not in self.effects:
            self.broken("I9", f"{told} is acknowledged and was not done")
        unsent = {"expired", CANCELLED, SUPERSEDED}
        if state["state"] == State.FAILED and state["detail"] in unsent and self._attempts[delivery].was_sent:
            self.broken("I12", f"{told} is reported as {state['detail']} without being sent, and was sent")
        again = [account for account in self.moves[delivery].values() if account[1:] == ("failed", "queued")]
        ends = [account for account in self.moves[delivery].values() if account[2] not in _OPEN]
        by_people = [end for end in ends if end[2] == State.ACKNOWLEDGED and end[1] not in _OPEN]
        if len(ends) > 1 + len(again) + len(by_people):
            self.broken("I9", f"{told} has {len(ends)} terminal outcomes")

    def _told(self, delivery: Delivery) -> str:
        order = self._orders.delivery(*delivery)
        return "an unknown delivery" if order is None else order.told(delivery[0])
