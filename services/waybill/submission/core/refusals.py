"""What a submission is answered when it is not taken: one problem per cause, here and nowhere else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem
from waybill.kernel.errors import RefusedError
from waybill.outbox import Rule as OutboxRule
from waybill.submission.core.resubmission import SubmissionId

__all__ = [
    "KEY_REUSED",
    "OUTCOME_UNKNOWN",
    "RESUBMISSION_REFUSED",
    "UNAVAILABLE",
    "UNREADABLE",
    "Refused",
    "by_outbox",
    "code_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a submission was not taken, and which one it would be or is, where that may be told."""

    problem: Problem
    submission_id: SubmissionId | None = None


KEY_REUSED: Final = Problem(
    code=ErrorCode.VERSION_CONFLICT,
    reason="idempotency_key_reused",
    detail="another body was submitted under this Idempotency-Key: nothing was taken, use a new one",
)
RESUBMISSION_REFUSED: Final = Problem(
    code=ErrorCode.VERSION_CONFLICT,
    reason="resubmission_refused",
    detail="submitted before; by the rule of this principal a person decides, the submission is listed as ambiguous",
)
OUTCOME_UNKNOWN: Final = Problem(
    code=ErrorCode.AMBIGUOUS_RESULT,
    reason="outcome_unknown",
    detail="the database was lost while it committed: submit the same bytes under the same Idempotency-Key again",
    status=503,
)
UNAVAILABLE: Final = Problem(
    code=ErrorCode.SOURCE_UNAVAILABLE,
    reason="outbox_unavailable",
    detail="a database does not answer: try again later, under the same Idempotency-Key",
)
UNREADABLE: Final = Problem(
    code=ErrorCode.VALIDATION, reason="malformed_field", detail="a field is none that PostgreSQL can hold", status=422
)
#: Everything else the outbox refuses is the content of the command.
_BY_RULE: Final[Mapping[str, tuple[ErrorCode, int]]] = {
    OutboxRule.PAYLOAD_TOO_LARGE: (ErrorCode.VALIDATION, 413),
    OutboxRule.FORM_NOT_PERMITTED: (ErrorCode.POLICY_BLOCK, 422),
    OutboxRule.TTL_OUT_OF_RANGE: (ErrorCode.POLICY_BLOCK, 422),
}


_OTHERWISE: Final = (ErrorCode.VALIDATION, 422)


def code_of(rule: str) -> ErrorCode:
    """Return the code of what a rule of the outbox refuses."""
    return _BY_RULE.get(rule, _OTHERWISE)[0]


def by_outbox(error: RefusedError) -> Refused:
    """Return what the outbox refused; its rule is the reason, its message names no data."""
    status = _BY_RULE.get(error.rule, _OTHERWISE)[1]
    code = code_of(error.rule)
    return Refused(problem=Problem(code=code, reason=error.rule, detail=str(error), status=status))
