"""The error families: what a caller may do about each.

```
FabricError                 code: a stable string, in logs, metrics and API bodies
├─ ConfigError              what was given is wrong; names where; exit code 2 (78 at service start)
├─ ContractError            this message is wrong for ever: dead letter, go on
├─ RefusedError             a rule said no; carries the rule; nothing happened
├─ TransientError           try later; optional retry_after
├─ FencedError              we no longer own this work: drop it quietly, never retry
├─ UnavailableError         a local tool, port, file or service is missing: says what to do
└─ InvariantBroken          our bug: stop the process; no loop catches it
```
Messages carry identifiers and advice, never payloads or secrets (ET-5). A vendor's error stays as `__cause__`.
"""

from datetime import timedelta
from typing import ClassVar


class FabricError(Exception):
    """Root of everything Waybill raises on purpose."""

    code: ClassVar[str] = "fabric_error"


class ConfigError(FabricError):
    """A file, setting or flag is wrong. The message says where and what was expected."""

    code = "config"


class ContractError(FabricError):
    """A message can never be processed. The caller dead-letters it and goes on."""

    code = "contract"


class RefusedError(FabricError):
    """A rule refused an action. `rule` is stable and documented; nothing was changed."""

    code = "refused"

    def __init__(self, message: str, *, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class TransientError(FabricError):
    """The same call may succeed later, not before `retry_after` when it is given."""

    code = "transient"

    def __init__(self, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class FencedError(FabricError):
    """Another owner took over. What we were about to write must not be written, nor retried."""

    code = "fenced"


class UnavailableError(FabricError):
    """Something this machine should provide is not there. The message says how to get it."""

    code = "unavailable"


class InvariantBroken(FabricError):  # noqa: N818 - it is not an error of the input, it is a broken promise of ours
    """A promise of our own code does not hold. The process stops; nothing catches this."""

    code = "invariant"
