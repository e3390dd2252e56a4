"""What a worker says of how one of its destinations stands now: what its valve knows, and since when.

A report is what was so when it was written, and no more: whoever reads it is told how old it is, and what a worker
that went silent said last counts for nothing. A destination about which there is nothing to say is plain: nothing is
written of it, and its worker's other reports prove that it would have been.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from waybill.delivery.core.controls.circuit import CircuitState
from waybill.kernel.clock import format_instant

__all__ = ["EVERY_S", "SILENT_S", "Report", "is_silent", "plain_document"]

#: A worker says again so often what has not changed.
EVERY_S: Final = 5.0
#: A worker that said nothing for so long is not believed any more.
SILENT_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One destination in one worker."""

    tenant: str
    destination: str
    #: Why no attempt starts, and since when.
    held_back: str | None = None
    held_back_since: datetime | None = None
    circuit: CircuitState = CircuitState.CLOSED
    #: While it is not closed: since when, and when the next attempt finds out; past while that is under way.
    circuit_since: datetime | None = None
    next_probe: datetime | None = None
    #: While its 429 counts.
    throttled_since: datetime | None = None
    throttled_until: datetime | None = None
    #: While attempts begin again slowly: how many may be in flight, of how many, and since when.
    ramp: int | None = None
    concurrency: int | None = None
    ramp_since: datetime | None = None

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to say."""
        is_open = self.held_back is None and self.circuit is CircuitState.CLOSED
        return is_open and self.throttled_until is None and self.ramp is None

    def document(self) -> dict[str, Any]:
        """Return it as its row keeps it and people are shown it; what does not hold is null."""
        return {
            "tenant": self.tenant,
            "destination": self.destination,
            "held_back": _holds(self.held_back, why=self.held_back, since=self.held_back_since),
            "circuit": {
                "state": self.circuit.value,
                "since": _told(self.circuit_since),
                "next_probe": _told(self.next_probe),
            },
            "throttled": _holds(self.throttled_until, since=self.throttled_since, until=self.throttled_until),
            "ramp": _holds(self.ramp, in_flight=self.ramp, of=self.concurrency, since=self.ramp_since),
        }


def plain_document(tenant: str, destination: str) -> Mapping[str, Any]:
    """Return the document of a destination of which its worker says nothing."""
    return Report(tenant=tenant, destination=destination).document()


def is_silent(age: timedelta) -> bool:
    """Whether what a worker said so long ago is not believed any more."""
    return age > timedelta(seconds=SILENT_S)


def _holds(what: object, **facts: object) -> dict[str, object] | None:
    return None if what is None else {name: _told(fact) for name, fact in facts.items()}


def _told(fact: object) -> object:
    return format_instant(fact) if isinstance(fact, datetime) else fact
