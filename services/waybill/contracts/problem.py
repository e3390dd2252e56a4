"""A refusal on the wire: RFC 9457 problem details whose `type` is one of the fourteen codes.

`urn:waybill:error:<CODE>` says what kind of failure it is, `reason` is a stable word a program may branch on
(`expired`, `gap`), `detail` a sentence for people. A sentence can hold personal data of a careless listener, so
only code and reason are ever recorded (ET-5). A code outside the set is read as VALIDATION with the reason
`unknown_code`: nobody invents a fifteenth (ET-1).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from waybill.contracts.codes import ErrorCode

__all__ = ["CONTENT_TYPE", "STATUS", "TYPE_PREFIX", "Problem", "parse_problem", "render_problem"]

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:waybill:error:"
#: A problem larger than this is not read.
MAX_BYTES: Final = 16_384
_REASON: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MAX_DETAIL: Final = 500

#: The HTTP status a listener answers with when nothing more exact fits.
STATUS: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.AUTH: 401,
    ErrorCode.AUTHZ: 403,
    ErrorCode.RATE_LIMIT: 429,
    ErrorCode.TRANSIENT_NETWORK: 503,
    ErrorCode.SOURCE_UNAVAILABLE: 503,
    ErrorCode.SCHEMA_CHANGED: 422,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.MULTIPLE_MATCH: 422,
    ErrorCode.VERSION_CONFLICT: 409,
    ErrorCode.POLICY_BLOCK: 422,
    ErrorCode.VALIDATION: 400,
    ErrorCode.PARTIAL_SOURCE: 422,
    ErrorCode.AMBIGUOUS_RESULT: 500,
    ErrorCode.PERMANENT_UNSUPPORTED: 422,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One refusal."""

    code: ErrorCode
    #: Lower case, digits and underscores; safe to record and to count by.
    reason: str
    #: For people, never recorded.
    detail: str = ""
    #: The HTTP status; the code's own when it is not given.
    status: int = 0
    #: With reason `gap`: the sequence the listener waits for.
    expected_sequence: int | None = None

    def __post_init__(self) -> None:
        """Refuse a reason that is not a word, and fill in the status."""
        if not _REASON.fullmatch(self.reason):
            raise ValueError("a reason is a word of lower case letters, digits and underscores")
        if self.status == 0:
            object.__setattr__(self, "status", STATUS[self.code])


def render_problem(problem: Problem) -> bytes:
    """Return the problem document."""
    document: dict[str, object] = {
        "type": TYPE_PREFIX + problem.code.value,
        "title": problem.code.value.replace("_", " ").lower(),
        "status": problem.status,
        "reason": problem.reason,
    }
    if problem.detail:
        document["detail"] = problem.detail
    if problem.expected_sequence is not None:
        document["expected_sequence"] = problem.expected_sequence
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def parse_problem(body: bytes, status: int) -> Problem | None:
    """Read a problem document that came with an HTTP status.

    Returns:
        None when the body is not one of ours (no JSON object, another `type`): the caller goes by the status. A
        reason that is not a word becomes `unspecified`; the detail is cut at 500 characters.
    """
    document = _document(body)
    kind = document.get("type")
    if not isinstance(kind, str) or not kind.startswith(TYPE_PREFIX):
        return None
    reason, detail = document.get("reason"), document.get("detail")
    expected = document.get("expected_sequence")
    try:
        code = ErrorCode(kind.removeprefix(TYPE_PREFIX))
    except ValueError:
        code, reason = ErrorCode.VALIDATION, "unknown_code"
    return Problem(
        code=code,
        reason=reason if isinstance(reason, str) and _REASON.fullmatch(reason) else "unspecified",
        detail=detail[:_MAX_DETAIL] if isinstance(detail, str) else "",
        status=status,
        expected_sequence=expected if type(expected) is int and expected > 0 else None,
    )


def _document(body: bytes) -> Mapping[str, object]:
    if len(body) > MAX_BYTES:
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
