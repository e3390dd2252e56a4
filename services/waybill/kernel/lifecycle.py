"""State machines as tables: advance one, and check that a table is whole."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)

__all__ = ["advance", "dead_ends", "unreachable"]


def advance(table: Mapping[tuple[S, E], S], state: S, event: E) -> S | None:
    """Return the next state, or None when the table has no such move: the caller refuses and audits it (RS-2)."""
    return table.get((state, event))


def unreachable(table: Mapping[tuple[S, E], S], states: type[S], start: S) -> set[S]:
    """Return the states no sequence of events leads to from `start`."""
    seen, frontier = {start}, [start]
    while frontier:
        here = frontier.pop()
        for (source, _), target in table.items():
            if source == here and target not in seen:
                seen.add(target)
                frontier.append(target)
    return set(states) - seen


def dead_ends(table: Mapping[tuple[S, E], S], states: type[S], final: frozenset[S]) -> set[S]:
    """Return non-final states without a way out to another state, and final ones that have one."""
    leaves = {state for state in states if not any(s == state and t != state for (s, _), t in table.items())}
    return leaves ^ final
