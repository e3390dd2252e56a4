"""What a resubmission may do: the same bytes under the same key, once more.

A client that got no answer does not know whether its commands were taken, and asks again. Because submission and
commands are one transaction, the fabric knows; whether it may tell a program, or a person has to look first, is the
rule of the principal (GW-16).
"""

import hashlib
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NewType

from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant
from waybill.kernel.units import format_duration, parse_duration
from waybill.submission.core.reading import Form

__all__ = ["ALWAYS", "KEPT", "Rule", "RuleKind", "SubmissionId", "body_digest", "read_rule", "submission_id"]

SubmissionId = NewType("SubmissionId", uuid.UUID)

#: How long a submission is remembered.
KEPT: Final = timedelta(days=90)
_NAMESPACE: Final = uuid.UUID("6f0f7a52-4a0e-5d55-9b6c-0d2f6f6a2f10")


class RuleKind(StrEnum):
    """Who answers a resubmission."""

    #: A person, each time.
    NEVER = "never"
    #: The fabric, for a while after the first submission; then a person.
    WITHIN = "within"
    #: The fabric, as long as it remembers the submission.
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule of one principal."""

    kind: RuleKind
    #: With `within`.
    window: timedelta = timedelta(0)

    def allows(self, accepted_at: datetime, now: datetime) -> bool:
        """Whether a resubmission is answered like the first; otherwise the submission waits for a person."""
        match self.kind:
            case RuleKind.NEVER:
                return False
            case RuleKind.WITHIN:
                return now - accepted_at <= self.window
            case RuleKind.ALWAYS:
                return True

    def __str__(self) -> str:
        window = f" {format_duration(self.window.total_seconds())}" if self.kind is RuleKind.WITHIN else ""
        return f"{self.kind}{window}"


#: In force where nobody set another: submissions are remembered together with their commands.
ALWAYS: Final = Rule(kind=RuleKind.ALWAYS)


def read_rule(text: str) -> Rule:
    """Read `never`, `always` or `within 24h`.

    Raises:
        ConfigError: anything else, or a window longer than submissions are remembered.
    """
    kind, _, window = text.strip().partition(" ")
    try:
        if kind == RuleKind.WITHIN:
            found = Rule(kind=RuleKind.WITHIN, window=timedelta(seconds=parse_duration(window.strip())))
            if found.window > KEPT:
                raise ConfigError(
                    f"within: submissions are remembered for {KEPT.days}d, a longer window promises nothing"
                )
            return found
        if window:
            raise ValueError(text)
        return Rule(kind=RuleKind(kind))
    except ValueError as error:
        raise ConfigError(f"{text!r} is no rule: never, always, or within and a time, such as 'within 24h'") from error


def submission_id(tenant: Tenant, principal: str, key: str) -> SubmissionId:
    """Return the id of what a principal submits under a key: known before it is stored, the same whenever asked."""
    return SubmissionId(uuid.uuid5(_NAMESPACE, f"{tenant}/{principal}/{key}"))


def body_digest(form: Form, body: bytes) -> bytes:
    """Return what tells two bodies apart; a batch of one is not the single command."""
    return hashlib.sha256(form.encode() + b"\n" + body).digest()
