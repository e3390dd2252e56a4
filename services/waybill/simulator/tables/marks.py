"""The beacons of the simulated control database, and what is asked of them."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

__all__ = ["Key", "Marked", "Values", "key_of"]

Key = tuple[str, str, int]
Values = Mapping[str, Any]


def key_of(values: Values) -> Key:
    """Return the partition a statement is about."""
    return values["tenant"], values["destination"], values["partition"]


class Marked:
    """What a database knows of its own past."""

    def __init__(self) -> None:
        #: Beacons of each partition, oldest first, and the committed offset they were left at.
        self.beacons: dict[Key, dict[UUID, int]] = {}

    def has_beacon(self, values: Values) -> bool:
        """Whether the beacon a statement asks for is there."""
        return values["beacon"] in self.beacons.get(key_of(values), {})

    def knows(self, values: Values) -> list[tuple[Any, ...]]:
        """Say whether the beacon is there that a committed offset names, if it names one."""
        return [(values["beacon"] is None or self.has_beacon(values), None)]

    def purge(self, values: Values) -> None:
        """Drop what is older than the beacon that is named."""
        found = self.beacons.get(key_of(values), {})
        if values["named"] in found:
            for beacon in list(found)[: list(found).index(values["named"])]:
                del found[beacon]

    def sure(self, query: str, values: Values, rows: list[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
        """Put before rows what a sure read says first: whether the database was not set back."""
        known = self.has_beacon(values) or "AS known" not in query
        return [(known, *(None,) * width), *((known, *row) for row in rows)]
