"""The last deliveries, in memory: bounded by count, and each by what one request may hold."""

from collections import OrderedDict
from dataclasses import replace
from datetime import datetime

from waybill.capture.core.records import Answered, Captured, Checked, Failed, Headers

__all__ = ["Shelf"]


class Shelf:
    """Keeps the newest; the oldest makes room. Used from one event loop."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._last = 0
        self._kept: OrderedDict[int, Captured] = OrderedDict()

    def put(
        self, headers: Headers, body: bytes, checked: Checked, received_at: datetime, replay_of: int | None
    ) -> Captured:
        """Keep one that came in, under the next number."""
        self._last += 1
        found = Captured(
            number=self._last,
            received_at=received_at,
            headers=headers,
            body=body,
            checked=checked,
            replay_of=replay_of,
        )
        self._kept[self._last] = found
        while len(self._kept) > self._keep:
            self._kept.popitem(last=False)
        return found

    def end(self, number: int, ending: Answered | Failed) -> None:
        """Note how one ended; one that had to make room meanwhile is forgotten."""
        if number in self._kept:
            self._kept[number] = replace(self._kept[number], ending=ending)

    def get(self, number: int) -> Captured | None:
        """Return one, None when it is not kept."""
        return self._kept.get(number)

    def newest_first(self) -> list[Captured]:
        """Return all that are kept."""
        return list(reversed(self._kept.values()))
