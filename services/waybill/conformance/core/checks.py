"""What is expected of a listener: one row per check, by level and profile.

L0 verifies, deduplicates and answers 2xx. L1 proves with receipts and refuses with codes. L2 keeps the order of an
aggregate and its own policy. L3 answers what became of a delivery. Each level holds the ones below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from waybill.conformance.core import judging as j
from waybill.conformance.core.evidence import FORGERIES, Evidence, Step
from waybill.conformance.core.judging import Finding, Judge, Result
from waybill.contracts.codes import ErrorCode as Code
from waybill.contracts.fabric import Level, Profile
from waybill.contracts.status_query import Said

__all__ = ["BURST", "Check", "checks_for", "judge"]

#: How many deliveries, or copies of one, are sent at one moment.
BURST: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One expectation."""

    name: str
    level: Level
    claim: str
    judge: Judge
    #: Asked of listeners with one of these profiles.
    profiles: frozenset[Profile]


_ALL: Final = frozenset(Profile)
_DEDUPLICATING: Final = _ALL - {Profile.NON_IDEMPOTENT}
_DURABLE: Final = frozenset({Profile.DURABLE_IDEMPOTENT})

_Row = tuple[str, str, Judge]

_L0: Final[Sequence[_Row]] = (
    ("accepts", "a signed delivery is answered 2xx", j.accepted(Step.FIRST)),
    ("applies", "it is applied before it is acknowledged", j.applied(Step.FIRST, 1)),
    ("never_redirects", "nothing is answered with a redirect", j.never_redirects),
    ("raw_bytes", "the signature is checked over the bytes as they came", j.accepted(Step.RAW_BYTES)),
    ("key_list", "one good signature in a list is enough", j.accepted(Step.KEY_LIST)),
    ("unsigned", "a delivery without a signature is refused", j.refused(Step.UNSIGNED)),
    ("forged_body", "a changed body is refused", j.refused(Step.FORGED_BODY)),
    ("forged_repeat", "a known delivery with a false signature is refused", j.refused(Step.FORGED_REPEAT)),
    ("moved_id", "a signature of another id is refused", j.refused(Step.MOVED_ID)),
    ("foreign_key", "a signature of a stranger is refused", j.refused(Step.FOREIGN_KEY)),
    ("late_clock", "a timestamp ten minutes back is refused", j.refused(Step.LATE_CLOCK)),
    ("early_clock", "a timestamp ten minutes ahead is refused", j.refused(Step.EARLY_CLOCK)),
    (
        "verifies_first",
        "nothing is parsed before the signature was checked",
        j.same_refusal(Step.FORGED_GARBAGE, Step.FORGED_BODY),
    ),
    ("forgeries_unapplied", "no forgery is applied", j.unapplied(*FORGERIES)),
)
_L0_DEDUPLICATING: Final[Sequence[_Row]] = (
    ("repeat", "a repeat is answered 2xx", j.accepted(Step.REPEAT)),
    ("repeat_unapplied", "a repeat is not applied again", j.unapplied(Step.REPEAT)),
    ("other_body_unapplied", "another body under a known id is not applied", j.unapplied(Step.OTHER_BODY)),
    ("concurrent", "duplicates at one moment are answered, or asked back", j.answered_or_later(Step.CONCURRENT)),
    ("concurrent_once", "duplicates at one moment are applied once", j.applied(Step.CONCURRENT, 1)),
)
_L0_DURABLE: Final[Sequence[_Row]] = (
    ("committed_first", "what was acknowledged outlives a kill", j.applied(Step.KILLED_AFTER, 1)),
    ("remembers", "a repeat after a kill is answered 2xx", j.accepted(Step.REPEAT_AFTER_KILL)),
    ("remembers_once", "a repeat after a kill is not applied again", j.unapplied(Step.REPEAT_AFTER_KILL)),
    ("amid_kept", "what was acknowledged before a kill amid work outlives it", j.kept(Step.KILLED_AMID)),
    ("amid_repeats", "what a kill interrupted is taken again", j.accepted(Step.REPEATS_AMID)),
    ("amid_once", "what a kill interrupted is applied once", j.applied(Step.REPEATS_AMID, BURST)),
)
_L1: Final[Sequence[_Row]] = (
    ("receipt", "a delivery is answered with a complete receipt", j.receipt_complete(Step.FIRST)),
    ("auth", "every forgery is refused with 401 AUTH", j.auth_everywhere),
    ("tenant", "another tenant's command is refused", j.problem(Step.OTHER_TENANT, Code.AUTHZ, status=403)),
    (
        "destination",
        "another destination's command is refused",
        j.problem(Step.OTHER_DESTINATION, Code.AUTHZ, status=403),
    ),
    ("expired", "a command past its time is refused", j.problem(Step.EXPIRED, Code.POLICY_BLOCK, status=422)),
    (
        "foreign_unapplied",
        "none of these is applied",
        j.unapplied(Step.OTHER_TENANT, Step.OTHER_DESTINATION, Step.EXPIRED),
    ),
)
_L1_DEDUPLICATING: Final[Sequence[_Row]] = (
    (
        "repeat_receipt",
        "a repeat gets the stored receipt, marked",
        j.receipts_equal(Step.FIRST, Step.REPEAT, are_marked=True),
    ),
    (
        "concurrent_receipt",
        "duplicates at one moment get one receipt",
        j.receipts_equal(Step.CONCURRENT, are_marked=False),
    ),
    (
        "other_body",
        "another body under a known id is a conflict",
        j.problem(Step.OTHER_BODY, Code.VERSION_CONFLICT, status=409),
    ),
    ("operation", "another delivery of one operation is answered", j.receipt_complete(Step.OPERATION_AGAIN)),
    ("operation_once", "one operation is applied once", j.unapplied(Step.OPERATION_AGAIN)),
)
_L1_DURABLE: Final[Sequence[_Row]] = (
    (
        "remembers_receipt",
        "a repeat after a kill gets the stored receipt, marked",
        j.receipts_equal(Step.KILLED_AFTER, Step.REPEAT_AFTER_KILL, are_marked=True),
    ),
)
_L2: Final[Sequence[_Row]] = (
    (
        "gap",
        "a number too early is told what is missing",
        j.problem(Step.GAP, Code.SOURCE_UNAVAILABLE, status=425, reason="gap", expected_sequence=2),
    ),
    ("gap_unapplied", "a number too early is not applied", j.unapplied(Step.GAP)),
    ("gap_filled", "the missing number and the one behind it are taken", j.accepted(Step.GAP_FILLED)),
    ("older", "an older number is refused", j.problem(Step.OLDER, Code.VERSION_CONFLICT, status=409)),
    ("older_unapplied", "an older number is not applied", j.unapplied(Step.OLDER)),
    ("final", "a number that never comes is passed over", j.accepted(Step.FINAL)),
    ("deferred", "a deferred number is passed over", j.accepted(Step.DEFERRED)),
    ("deferred_came", "a deferred number is taken although it is older", j.accepted(Step.DEFERRED_CAME)),
    (
        "unsupported",
        "a command type nobody serves is refused",
        j.problem(Step.UNSUPPORTED, Code.PERMANENT_UNSUPPORTED, status=422),
    ),
    ("policy", "what policy forbids is refused", j.problem(Step.BLOCKED, Code.POLICY_BLOCK, status=422)),
    ("policy_unapplied", "what policy forbids is not applied", j.unapplied(Step.BLOCKED)),
)
_L3: Final[Sequence[_Row]] = (
    ("query_done", "a done delivery is reported with its receipt", j.said(Step.ASKED_DONE, Said.DONE)),
    ("query_not_done", "an unknown delivery is reported as not done", j.said(Step.ASKED_UNKNOWN, Said.NOT_DONE)),
    ("query_unapplied", "a status query executes nothing", j.unapplied(Step.ASKED_DONE, Step.ASKED_UNKNOWN)),
)


def _rows(level: Level, profiles: frozenset[Profile], rows: Sequence[_Row]) -> tuple[Check, ...]:
    return tuple(
        Check(name=name, level=level, claim=claim, judge=judge, profiles=profiles) for name, claim, judge in rows
    )


CHECKS: Final = (
    *_rows(Level.L0, _ALL, _L0),
    *_rows(Level.L0, _DEDUPLICATING, _L0_DEDUPLICATING),
    *_rows(Level.L0, _DURABLE, _L0_DURABLE),
    *_rows(Level.L1, _ALL, _L1),
    *_rows(Level.L1, _DEDUPLICATING, _L1_DEDUPLICATING),
    *_rows(Level.L1, _DURABLE, _L1_DURABLE),
    *_rows(Level.L2, _DEDUPLICATING, _L2),
    *_rows(Level.L3, _DEDUPLICATING, _L3),
)


_WITHOUT_A_DELIVERY: Final = frozenset({"accepts", "never_redirects"})


def checks_for(level: Level, profile: Profile) -> tuple[Check, ...]:
    """Return what is asked of a listener that declares this level and profile."""
    return tuple(check for check in CHECKS if check.level <= level and profile in check.profiles)


def judge(check: Check, evidence: Evidence) -> Finding:
    """Judge one check; where not even the first delivery was taken, no other answer proves anything."""
    first = evidence.get(Step.FIRST)
    if (first is None or not first.reply.accepted) and check.name not in _WITHOUT_A_DELIVERY:
        return Finding(result=Result.NOT_TESTED, why="no delivery was taken")
    return check.judge(evidence)
