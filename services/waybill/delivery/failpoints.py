"""Named steps at which a test may stop or kill the process.

A worker that dies or freezes at any step must leave something to finish, never something to guess; the only way to
show it is to do it. In a process of its own `WAYBILL_FAILPOINT=<step>:<kill|freeze>[:<n>]` acts at the n-th passage
(the first by default); inside a test, an `act` of its own does.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Final

from waybill.kernel.errors import ConfigError

__all__ = ["INTENT_STEPS", "STEPS", "Failpoints", "from_environment"]

#: Of an attempt that is written down first.
INTENT_STEPS: Final = ("before_intent", "after_intent", "before_answer", "after_answer")
#: In the order of one micro-batch, then those of the rows, of one attempt, and of its intent.
STEPS: Final = (
    "produced",
    "flushed",
    "offsets_sent",
    "committed",
    "before_row",
    "after_row",
    "before_publish",
    "after_publish",
    "before_send",
    "answered",
    *INTENT_STEPS,
)


class Failpoints:
    """Calls `act` when a step is passed; without one, passing a step costs one comparison."""

    __slots__ = ("_act",)

    def __init__(self, act: Callable[[str], None] | None = None) -> None:
        self._act = act

    @property
    def is_set(self) -> bool:
        """Whether anything may happen at a step."""
        return self._act is not None

    def __call__(self, step: str) -> None:
        """Pass a step."""
        if self._act is not None:
            self._act(step)


def from_environment(environ: Mapping[str, str]) -> Failpoints:
    """Read `WAYBILL_FAILPOINT`.

    Raises:
        ConfigError: it names no step or no act.
    """
    text = environ.get("WAYBILL_FAILPOINT")
    if not text:
        return Failpoints()
    step, _, rest = text.partition(":")
    act, _, count = rest.partition(":")
    if step not in STEPS or act not in {"kill", "freeze"} or not (count or "1").isdigit():
        raise ConfigError(f"WAYBILL_FAILPOINT is `<step>:<kill|freeze>[:<n>]`, step one of {', '.join(STEPS)}")
    number = signal.SIGKILL if act == "kill" else signal.SIGSTOP
    left = [int(count or "1")]

    def strike(passed: str) -> None:
        if passed == step:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), number)

    return Failpoints(strike)
