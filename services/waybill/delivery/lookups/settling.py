"""A settler that tells no failure of a delivery before it is known that it was not acknowledged under an earlier record."""

from waybill.contracts.states import Move, State
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.lanes import Held, Item, Lane
from waybill.delivery.core.records import Event, Try
from waybill.delivery.core.retry import End
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.lookups.lookups import Lookups
from waybill.delivery.settler import Settler, Topics

__all__ = ["KnowingSettler"]


class KnowingSettler(Settler):
    """Looks a delivery up before its first move that is no acknowledgement."""

    def __init__(self, desk: Desk, owner: Owner, topics: Topics) -> None:
        super().__init__(desk, owner, topics)
        #: Deliveries that wait to be known.
        self.lookups = Lookups(desk, owner)

    @property
    def is_idle(self) -> bool:
        """Whether everything that was recorded is in its row; what waits to be known is not."""
        return self.lookups.is_idle and self.rows.is_idle

    def end(self, lane: Lane | None, item: Item, end: End, attempt: Try, verdict: Verdict | None) -> None:
        """Move an item, unless that would be the first anybody hears of what was acknowledged before."""
        if end.move is Move.ACKNOWLEDGE or not self.lookups.concern(item):
            super().end(lane, item, end, attempt, verdict)
            return

        def known(is_acknowledged: bool) -> None:
            if is_acknowledged and item.held is not Held.REPEAT:
                self._repeated(lane, item, attempt, verdict)
            else:
                super(KnowingSettler, self).end(lane, item, end, attempt, verdict)

        self.lookups.ask(item, known)

    def _repeated(self, lane: Lane | None, item: Item, attempt: Try, verdict: Verdict | None) -> None:
        """Finish a copy of what was acknowledged without a row: it is audited, nothing moves (AT-2)."""
        item.state, item.version, item.next_due = State.ACKNOWLEDGED, 1, None
        event = Event("repeat", item.state, False, attempt, verdict)
        if item.held is Held.MEMORY and lane is not None:
            self.audit(item, event)
            self._owner.lanes.settle(lane, item)
        else:  # its row ends where the delivery stands
            recorder, place = self._desk.target.recorder, self._owner.place
            item.pending = (recorder.outcome(item, place, event), recorder.state(item, place, attempt.ended_ms), None)
            self.rows.move(lane, item)
