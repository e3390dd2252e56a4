"""What an attempt's end means: one reviewed table from answers and transport failures to the fourteen codes.

Written for destinations that keep identifier and body digest (`durable_idempotent`): everything transient is
retried, even when the destination may have acted, since it will answer the same again (GW-9). Anything the table
does not name is not retried (ET-3). A problem document of ours may say more than the status, never turn a
refusal into a retry. Messages name rules, never text of the answer (ET-5). What brokers and the control database
answer is the other half of the table: `contracts.driver_errors`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from waybill.contracts.codes import RETRIED, ErrorCode, Phase
from waybill.contracts.problem import Problem

__all__ = [
    "CLASSES",
    "FAILURES",
    "OTHER",
    "STATUSES",
    "Failure",
    "Proven",
    "Rule",
    "Verdict",
    "judge_failure",
    "judge_problem",
    "judge_status",
]


class Failure(StrEnum):
    """How an attempt ended without a whole answer."""

    #: The name did not resolve, the connection was refused or TLS failed.
    CONNECT = "connect"
    #: No connection within the connect limit.
    CONNECT_TIMEOUT = "connect_timeout"
    #: No free connection within the pool limit.
    POOL_TIMEOUT = "pool_timeout"
    #: Waybill does not connect there.
    REFUSED = "refused"
    #: The request could not be built: URL or header is not valid.
    UNBUILDABLE = "unbuildable"
    #: Writing the request failed.
    WRITE = "write"
    #: The connection broke before the whole answer was there.
    READ = "read"
    #: No answer within the read or total limit.
    TIMEOUT = "timeout"
    #: The answer was not HTTP, or larger than the limit.
    ANSWER = "answer"
    #: Anything else the client reports.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the table."""

    code: ErrorCode
    detail: str
    #: Whether the destination may have acted although it did not prove it.
    may_have_acted: bool = False
    phase: Phase = Phase.AFTER_SENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What a destination reported as done."""

    status: str | None = None
    source_version: str | None = None
    count: int | None = None
    digest: str | None = None
    evidence: str | None = None


class Verdict(NamedTuple):
    """What one attempt came to, a tuple because each delivery makes one. `code` is None when the operation was proven, or taken to be done later."""

    code: ErrorCode | None
    phase: Phase
    detail: str | None = None
    may_have_acted: bool = False
    http_status: int | None = None
    proven: Proven | None = None
    #: Seconds the destination asked us to wait, at least.
    retry_after_s: float | None = None
    #: The sequence a listener waits for that refused for a gap.
    expected_sequence: int | None = None
    #: Seconds its result is waited for, when the destination answered that it will do it later.
    accepted_for_s: float | None = None

    @property
    def is_proven(self) -> bool:
        """Whether the operation was proven."""
        return self.code is None and self.accepted_for_s is None

    @property
    def is_retried(self) -> bool:
        """Whether the table retries this end by itself."""
        return self.code in RETRIED


def _rule(code: ErrorCode, detail: str, *, acted: bool = False, phase: Phase = Phase.AFTER_SENDING) -> Rule:
    return Rule(code=code, detail=detail, may_have_acted=acted, phase=phase)


_E: Final = ErrorCode

#: Exact statuses; ranges follow in `rule_for`.
STATUSES: Final[dict[int, Rule]] = {
    202: _rule(
        _E.PERMANENT_UNSUPPORTED, "accepted_without_receipt", acted=True
    ),  # unless the destination declares results
    400: _rule(_E.VALIDATION, "bad_request"),
    401: _rule(_E.AUTH, "unauthorized"),
    403: _rule(_E.AUTHZ, "forbidden"),
    404: _rule(_E.NOT_FOUND, "not_found"),
    405: _rule(_E.PERMANENT_UNSUPPORTED, "method_not_allowed"),
    407: _rule(_E.AUTH, "proxy_unauthorized"),
    408: _rule(_E.TRANSIENT_NETWORK, "request_timeout"),  # the request did not arrive in time
    409: _rule(_E.VERSION_CONFLICT, "conflict"),  # the same id with another body (GW-5)
    410: _rule(_E.PERMANENT_UNSUPPORTED, "gone"),
    411: _rule(_E.VALIDATION, "length_required"),
    412: _rule(_E.VERSION_CONFLICT, "precondition_failed"),
    413: _rule(_E.VALIDATION, "too_large"),
    414: _rule(_E.VALIDATION, "address_too_long"),
    415: _rule(_E.VALIDATION, "unsupported_media_type"),
    421: _rule(_E.PERMANENT_UNSUPPORTED, "misdirected"),
    422: _rule(_E.VALIDATION, "unprocessable"),
    425: _rule(_E.SOURCE_UNAVAILABLE, "too_early"),
    428: _rule(_E.VERSION_CONFLICT, "precondition_required"),
    429: _rule(_E.RATE_LIMIT, "too_many_requests"),
    431: _rule(_E.VALIDATION, "headers_too_large"),
    451: _rule(_E.POLICY_BLOCK, "legal_reasons"),
    500: _rule(_E.SOURCE_UNAVAILABLE, "server_error", acted=True),
    502: _rule(_E.TRANSIENT_NETWORK, "bad_gateway", acted=True),
    503: _rule(_E.SOURCE_UNAVAILABLE, "unavailable"),
    504: _rule(_E.TRANSIENT_NETWORK, "gateway_timeout", acted=True),
}
#: By hundreds, where no exact status is listed.
CLASSES: Final[dict[int, Rule]] = {
    1: _rule(_E.VALIDATION, "informational_as_answer"),
    2: _rule(_E.VALIDATION, "receipt_incomplete", acted=True),  # a bare 2xx closes nothing (DC-3)
    3: _rule(_E.VALIDATION, "redirect_refused"),  # never followed: the signed body goes to one address
    4: _rule(_E.PERMANENT_UNSUPPORTED, "refused"),
    5: _rule(_E.SOURCE_UNAVAILABLE, "server_error", acted=True),
}
OTHER: Final = _rule(_E.VALIDATION, "not_http")

_BEFORE: Final = Phase.BEFORE_SENDING
_DURING: Final = Phase.DURING_SENDING
FAILURES: Final[dict[Failure, Rule]] = {
    Failure.CONNECT: _rule(_E.TRANSIENT_NETWORK, "connect", phase=_BEFORE),
    Failure.CONNECT_TIMEOUT: _rule(_E.TRANSIENT_NETWORK, "connect_timeout", phase=_BEFORE),
    Failure.POOL_TIMEOUT: _rule(_E.TRANSIENT_NETWORK, "pool_timeout", phase=_BEFORE),
    Failure.REFUSED: _rule(_E.POLICY_BLOCK, "egress", phase=_BEFORE),
    Failure.UNBUILDABLE: _rule(_E.VALIDATION, "request_unbuildable", phase=_BEFORE),
    Failure.WRITE: _rule(_E.TRANSIENT_NETWORK, "write_error", acted=True, phase=_DURING),
    Failure.READ: _rule(_E.TRANSIENT_NETWORK, "read_error", acted=True, phase=_DURING),
    Failure.TIMEOUT: _rule(_E.TRANSIENT_NETWORK, "timeout", acted=True, phase=_DURING),
    Failure.ANSWER: _rule(_E.VALIDATION, "answer_unreadable", acted=True, phase=_DURING),
    Failure.UNKNOWN: _rule(_E.AMBIGUOUS_RESULT, "unclassified", acted=True, phase=_DURING),
}


def rule_for(status: int) -> Rule:
    """Return the line of the table for a status; every integer has one."""
    return STATUSES.get(status) or CLASSES.get(status // 100) or OTHER


def judge_status(status: int, *, detail: str | None = None, retry_after_s: float | None = None) -> Verdict:
    """Judge an answer by its status alone. `detail` narrows the table's word, such as `receipt_incomplete:evidence`."""
    rule = rule_for(status)
    return Verdict(
        code=rule.code,
        phase=rule.phase,
        detail=detail or rule.detail,
        may_have_acted=rule.may_have_acted,
        http_status=status,
        retry_after_s=retry_after_s,
    )


def judge_problem(problem: Problem, *, retry_after_s: float | None = None) -> Verdict:
    """Judge an answer that carries a problem document of ours.

    Its code wins over the status unless it asks for a retry that the status does not allow, or the status is no
    error at all: then the status alone counts.
    """
    rule = rule_for(problem.status)
    if problem.status < 400 or (problem.code in RETRIED and rule.code not in RETRIED):
        return judge_status(problem.status, retry_after_s=retry_after_s)
    return Verdict(
        code=problem.code,
        phase=Phase.AFTER_SENDING,
        detail=problem.reason,
        may_have_acted=rule.may_have_acted or problem.code is ErrorCode.AMBIGUOUS_RESULT,
        http_status=problem.status,
        retry_after_s=retry_after_s,
        expected_sequence=problem.expected_sequence,
    )


def judge_failure(failure: Failure, detail: str | None = None) -> Verdict:
    """Judge an attempt that got no whole answer. `detail` narrows the table's word, such as `egress_loopback`."""
    rule = FAILURES[failure]
    return Verdict(code=rule.code, phase=rule.phase, detail=detail or rule.detail, may_have_acted=rule.may_have_acted)
