"""Whether what may already have happened may be sent again: one rule per profile, and what an intent allows.

| | durable_idempotent | bounded_deduplication | non_idempotent |
| --- | --- | --- | --- |
| nothing was sent | again | again | again |
| may have acted | again | again within count and age, else ambiguous | ambiguous |
| a transient refusal | again | again within count and age, else ambiguous | again where declared as "not done", else ambiguous |
| a final refusal after an attempt that may have acted | as refused | ambiguous | ambiguous |

An *intent* is written before the first byte of an attempt and answered before the lane goes on. One without an
answer says that an attempt may have acted and nobody knows (GW-11, GW-12, AM-1).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from waybill.contracts.codes import RETRIED, Phase
from waybill.contracts.fabric import DestinationConfig, Profile
from waybill.delivery.core.classify import Verdict
from waybill.delivery.core.records import Try

__all__ = [
    "BOUND_PASSED",
    "TELLING",
    "Asks",
    "Lost",
    "Outcome",
    "Over",
    "Prior",
    "RepeatRule",
    "Resume",
    "Send",
    "Tried",
    "resume",
]

#: Why a delivery is ambiguous although no attempt just ended.
UNANSWERED: Final = "unanswered_attempt"
BOUND_PASSED: Final = "repeat_bound_passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatRule:
    """What one destination can bear."""

    profile: Profile
    max_attempts: int
    max_age: timedelta
    not_done: frozenset[int]

    @classmethod
    def of(cls, config: DestinationConfig) -> "RepeatRule":
        """Return the rule of a destination as it is configured."""
        return cls(
            profile=config.profile,
            max_attempts=config.repeats.max_attempts,
            max_age=timedelta(seconds=config.repeats.max_age_s),
            not_done=config.not_done,
        )

    @property
    def needs_intent(self) -> bool:
        """Whether every attempt is written down before its first byte."""
        return self.profile is not Profile.DURABLE_IDEMPOTENT

    def remembers(self, sends: int, first_sent_at: datetime | None, at: datetime) -> bool:
        """Whether one more attempt at an instant would still be recognised as a repeat (GW-11).

        Args:
            sends: attempts of which a byte may have left.
            first_sent_at: the first of them; None without any.
            at: when the next one would start.
        """
        return first_sent_at is None or (sends < self.max_attempts and at - first_sent_at < self.max_age)

    def bears(self, sends: int, first_sent_at: datetime | None, now: datetime) -> bool:
        """Whether an attempt that is written down may still be made: it may have waited long for its turn (GW-11).

        Args:
            sends: attempts before it of which a byte may have left.
            first_sent_at: the first of them.
            now: just before its first byte.
        """
        is_first = self.profile is not Profile.BOUNDED_DEDUPLICATION or sends == 0
        return is_first or self.remembers(sends, first_sent_at, now)

    def may_follow(self, verdict: Verdict, sends: int, first_sent_at: datetime | None, due: datetime) -> bool:
        """Whether an attempt that ended so may be followed by another one at `due`.

        Args:
            verdict: of a code that is retried.
            sends: attempts of which a byte may have left, this one included.
            first_sent_at: the first of them; None without any.
            due: when the next one would start.
        """
        if self.profile is Profile.DURABLE_IDEMPOTENT or verdict.phase is Phase.BEFORE_SENDING:
            return True
        if self.profile is Profile.BOUNDED_DEDUPLICATION:
            return self.remembers(sends, first_sent_at, due)
        return not verdict.may_have_acted and verdict.http_status in self.not_done

    def leaves_doubt(self, verdict: Verdict, may_have_acted: bool) -> bool:
        """Whether an end that is not retried leaves unknown what happened.

        Args:
            verdict: with a code that is not retried.
            may_have_acted: whether an earlier attempt may have.
        """
        if self.profile is Profile.DURABLE_IDEMPOTENT or verdict.code in RETRIED:
            return False
        return may_have_acted or verdict.may_have_acted


#: A gap resolution: heard twice it says the same, whatever its listener can bear otherwise.
TELLING: Final = RepeatRule(
    profile=Profile.DURABLE_IDEMPOTENT, max_attempts=1, max_age=timedelta(0), not_done=frozenset()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """An attempt that was never answered, as its intent was found."""

    sends: int
    first_sent_at: datetime | None
    last_sent_at: datetime


@dataclass(frozen=True, slots=True)
class Send:
    """Nothing forbids an attempt."""


@dataclass(frozen=True, slots=True)
class Asks:
    """Look again at `due`: the attempt of a former owner may still be under way."""

    due: datetime


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody knows what happened, and it must not be tried again."""

    detail: str


Resume: TypeAlias = Send | Asks | Lost


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt that ended, now or earlier."""

    verdict: Verdict
    attempt: Try
    #: It was made for an earlier record of the same delivery.
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Over:
    """The time of the delivery is over, and no attempt of it is unaccounted for."""


#: What became of a delivery whose attempts are written down first.
Outcome: TypeAlias = Tried | Asks | Lost | Over


def resume(rule: RepeatRule, prior: Prior, now: datetime, grace: timedelta, *, is_expired: bool) -> Resume:
    """Decide what follows an attempt that was never answered.

    Args:
        rule: the destination's.
        prior: what was found.
        now: the instant of the decision.
        grace: from the start of an attempt to the moment from which its last byte is behind us.
        is_expired: whether the delivery may not be sent any more.
    """
    if rule.profile is Profile.NON_IDEMPOTENT or is_expired:
        return Lost(UNANSWERED)
    quiet = prior.last_sent_at + grace
    if not rule.remembers(prior.sends, prior.first_sent_at, max(now, quiet)):
        return Lost(UNANSWERED)
    return Asks(quiet) if now < quiet else Send()
