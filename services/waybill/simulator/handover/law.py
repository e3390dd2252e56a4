"""The law of what is handed over in Kafka, held against every transaction that commits.

- I13 a record of a deliveries topic is committed together with the outcome that says so, and that outcome never without
  its record; records of one move of a delivery are equal, byte for byte; the next delivery of an aggregate is handed over
  only when what an earlier one is waited for has ended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from waybill.contracts.names import deliveries_topic
from waybill.contracts.states import HANDED_OVER
from waybill.delivery.core.stored import pack_record
from waybill.infra.kafka import Outgoing
from waybill.kernel.ids import DestinationName, Tenant
from waybill.simulator.orders import Orders

__all__ = ["HandOvers", "SimOffsets"]

Delivery = tuple[str, str]
#: While an earlier delivery is in one of these, a later one of its aggregate is not handed over.
_UNFINISHED = frozenset({"queued", "delivered", "retrying"})


class HandOvers:
    """Sees every record that was handed over, and every outcome."""

    def __init__(self, tenant: Tenant, orders: Orders, broken: Callable[[str, str], None]) -> None:
        self._prefix = deliveries_topic(tenant, DestinationName(""))
        self._orders, self._broken = orders, broken
        #: Delivery and version → what was handed over with it.
        self._records: dict[tuple[Delivery, int], bytes] = {}
        #: What each delivery that was handed over may be found under, however often.
        self.seen: dict[Delivery, int] = {}

    def destination_of(self, topic: str) -> str | None:
        """Return whose deliveries topic it is, None for any other."""
        return topic.removeprefix(self._prefix) if topic.startswith(self._prefix) else None

    def committed(
        self,
        records: Sequence[Outgoing],
        outcomes: Sequence[Mapping[str, Any]],
        states: Mapping[Delivery, Mapping[str, Any]],
    ) -> None:
        """Check one transaction.

        Args:
            records: all of it.
            outcomes: those among them, decoded.
            states: of all deliveries as the topics have them with it.
        """
        handed: dict[Delivery, list[bytes]] = {}
        for delivery, packed in self._handed(records):
            handed.setdefault(delivery, []).append(packed)
            self.seen[delivery] = self.seen.get(delivery, 0) + 1
        moves = [outcome for outcome in outcomes if self._is_hand_over(outcome)]
        for outcome in moves:
            self._check_move(outcome, handed)
        said = {(outcome["destination"], outcome["delivery_id"]) for outcome in moves}
        for delivery in handed:
            if self._orders.delivery(*delivery) is None:
                continue  # a gap resolution is settled by it
            if delivery not in said:
                self._broken("I13", f"{self._told(delivery)} was handed over and nothing says so")
            self._check_turn(delivery, states)

    def _handed(self, records: Sequence[Outgoing]) -> Iterator[tuple[Delivery, bytes]]:
        for record in records:
            destination = self.destination_of(record.topic)
            if destination is not None:
                headers = dict(record.headers or ())
                packed = pack_record(record.key, record.headers or [], record.value)
                yield (destination, (headers["webhook-id"] or b"").decode()), packed

    @staticmethod
    def _is_hand_over(outcome: Mapping[str, Any]) -> bool:
        return outcome["detail"] == HANDED_OVER and outcome["outcome_id"] is not None

    def _check_move(self, outcome: Mapping[str, Any], handed: Mapping[Delivery, list[bytes]]) -> None:
        delivery, version = (outcome["destination"], outcome["delivery_id"]), outcome["version"]
        if self._orders.delivery(*delivery) is None:
            return
        for packed in handed.get(delivery, ()):
            if self._records.setdefault((delivery, version), packed) != packed:
                self._broken("I13", f"{self._told(delivery)} v{version} was handed over as two records that differ")
        if delivery not in handed:
            self._broken("I13", f"{self._told(delivery)} v{version} is told as handed over, and no record is there")

    def _check_turn(self, delivery: Delivery, states: Mapping[Delivery, Mapping[str, Any]]) -> None:
        destination, order = delivery[0], self._orders.delivery(*delivery)
        assert order is not None
        for earlier in self._orders.before(destination, order):
            state = states.get((destination, earlier.delivery_id(destination)))
            if state is None or state["state"] in _UNFINISHED:
                self._broken(
                    "I13", f"{order.told(destination)} was handed over before {earlier.told(destination)} ended"
                )
                return

    def _told(self, delivery: Delivery) -> str:
        order = self._orders.delivery(*delivery)
        return "an unknown delivery" if order is None else order.told(delivery[0])


class SimOffsets:
    """How far listeners have read: everything there is, or nothing ever, as they are in a run."""

    def __init__(self, ends: Mapping[tuple[str, int], int], *, is_reading: bool) -> None:
        self._ends, self._is_reading = ends, is_reading

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return what a group has committed."""
        return dict(self._ends) if self._is_reading else {}
