"""The story of a request that was complete, and perhaps was not any more: numbered, one way, each number once."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Chapter", "Turn", "turn"]


class Turn(StrEnum):
    """How a request changed."""

    COMPLETED = "completed"
    #: It was complete and is not any more: a command came late, or an exception expired or was rejected.
    REOPENED = "reopened"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """How far the story of a request is."""

    #: Times it was completed.
    completions: int = 0
    is_complete: bool = False


def turn(chapter: Chapter, *, is_complete: bool) -> tuple[Chapter, Turn | None]:
    """Return what the story is now, and what there is to tell; nothing where nothing changed.

    The completion number only grows; a reopening has the number of the completion that it takes back.
    """
    if is_complete == chapter.is_complete:
        return chapter, None
    if is_complete:
        return Chapter(completions=chapter.completions + 1, is_complete=True), Turn.COMPLETED
    return Chapter(completions=chapter.completions, is_complete=False), Turn.REOPENED
