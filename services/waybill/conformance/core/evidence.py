"""What a run saw: the steps it made, the answers to each, and by how much the listener's own count rose."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from waybill.contracts.problem import CONTENT_TYPE as PROBLEM_TYPE
from waybill.contracts.problem import Problem, parse_problem

__all__ = ["FORGERIES", "Evidence", "Reply", "Seen", "Step"]


class Step(StrEnum):
    """One thing a run makes happen."""

    #: A delivery, then the same bytes again, then other bytes under its id.
    FIRST = "first"
    REPEAT = "repeat"
    OTHER_BODY = "other_body"
    #: The body of the first delivery under a signature that is none.
    FORGED_REPEAT = "forged_repeat"
    #: A byte changed; no JSON at all; no signature; another id; another key; a clock behind; a clock ahead.
    FORGED_BODY = "forged_body"
    FORGED_GARBAGE = "forged_garbage"
    UNSIGNED = "unsigned"
    MOVED_ID = "moved_id"
    FOREIGN_KEY = "foreign_key"
    LATE_CLOCK = "late_clock"
    EARLY_CLOCK = "early_clock"
    #: Several signatures, the good ones last.
    KEY_LIST = "key_list"
    #: Data that a parser would write differently.
    RAW_BYTES = "raw_bytes"
    #: Rightly signed, yet not for this listener, too late, or for nobody here.
    OTHER_TENANT = "other_tenant"
    OTHER_DESTINATION = "other_destination"
    EXPIRED = "expired"
    UNSUPPORTED = "unsupported"
    #: Data the listener said it refuses.
    BLOCKED = "blocked"
    #: One delivery many times at one moment.
    CONCURRENT = "concurrent"
    #: Two deliveries of one operation.
    OPERATION = "operation"
    OPERATION_AGAIN = "operation_again"
    #: Number 3 after 1; then 2 and 3; then another one that says it is 2.
    GAP = "gap"
    GAP_FILLED = "gap_filled"
    OLDER = "older"
    #: A gap resolution and the number behind it; a deferred number that comes late.
    FINAL = "final"
    DEFERRED = "deferred"
    DEFERRED_CAME = "deferred_came"
    #: What became of the first delivery; of one never sent.
    ASKED_DONE = "asked_done"
    ASKED_UNKNOWN = "asked_unknown"
    #: Killed right after an answer: what counted then, and the same delivery afterwards.
    KILLED_AFTER = "killed_after"
    REPEAT_AFTER_KILL = "repeat_after_kill"
    #: Killed amid many deliveries: what counted before they were repeated, and with the repeats.
    KILLED_AMID = "killed_amid"
    REPEATS_AMID = "repeats_amid"


#: What nobody signed, by any reading.
FORGERIES: Final = (
    Step.FORGED_REPEAT,
    Step.FORGED_BODY,
    Step.FORGED_GARBAGE,
    Step.UNSIGNED,
    Step.MOVED_ID,
    Step.FOREIGN_KEY,
    Step.LATE_CLOCK,
    Step.EARLY_CLOCK,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer; `status` 0 when no whole answer came."""

    status: int
    body: bytes = b""
    content_type: str = ""
    #: It carried `waybill-repeat: true`.
    is_marked: bool = False
    #: The id it answers to.
    delivery_id: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it is a 2xx."""
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """Whether it says no, for good."""
        return 400 <= self.status < 500

    @property
    def problem(self) -> Problem | None:
        """The problem details it carries, if it does."""
        return parse_problem(self.body, self.status) if self.content_type == PROBLEM_TYPE else None

    @property
    def shown(self) -> str:
        """What it was, in a few words."""
        if self.status == 0:
            return "no answer"
        problem = self.problem
        return f"{self.status} {problem.code.value} {problem.reason}" if problem is not None else str(self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one step brought."""

    replies: tuple[Reply, ...]
    #: By how much the listener's own count rose; None where it cannot be seen.
    effects: int | None = None

    @property
    def reply(self) -> Reply:
        """The last answer."""
        return self.replies[-1]


#: A step that is absent was not made.
Evidence: TypeAlias = Mapping[Step, Seen]
