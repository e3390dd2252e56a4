"""The error taxonomy: fourteen codes, closed. Every failure carries exactly one (ET-1)."""

from enum import StrEnum
from typing import Final

__all__ = ["RETRIED", "ErrorCode", "Phase"]


class ErrorCode(StrEnum):
    """Why an attempt or a record did not end well."""

    #: A signature or credential was refused.
    AUTH = "AUTH"
    #: Authenticated, yet not allowed: wrong tenant, missing right.
    AUTHZ = "AUTHZ"
    #: Too many requests; `Retry-After` is honoured.
    RATE_LIMIT = "RATE_LIMIT"
    #: DNS, connect, reset, timeout, gateway failure.
    TRANSIENT_NETWORK = "TRANSIENT_NETWORK"
    #: The destination answered that it cannot serve now.
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"
    #: The destination's schema differs from what the command needs.
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    #: No such subject or object there.
    NOT_FOUND = "NOT_FOUND"
    #: More than one subject matches; nobody guesses.
    MULTIPLE_MATCH = "MULTIPLE_MATCH"
    #: The same identifier with another body, or a stale version.
    VERSION_CONFLICT = "VERSION_CONFLICT"
    #: Policy refused: legal hold, purpose, region, or detail `expired`.
    POLICY_BLOCK = "POLICY_BLOCK"
    #: Malformed, incomplete or unreadable.
    VALIDATION = "VALIDATION"
    #: Only a part could be done.
    PARTIAL_SOURCE = "PARTIAL_SOURCE"
    #: The outcome is unknown after a possible action.
    AMBIGUOUS_RESULT = "AMBIGUOUS_RESULT"
    #: The destination will never do this.
    PERMANENT_UNSUPPORTED = "PERMANENT_UNSUPPORTED"


#: Only these three are retried by themselves (ET-2); anything unclassified is not (ET-3).
RETRIED: Final = frozenset({ErrorCode.RATE_LIMIT, ErrorCode.TRANSIENT_NETWORK, ErrorCode.SOURCE_UNAVAILABLE})


class Phase(StrEnum):
    """How far an attempt got: it decides whether something may have happened (AM-5)."""

    #: Nothing left this process: DNS, connect, pool, TLS before the request.
    BEFORE_SENDING = "before_sending"
    #: Bytes left; no whole answer came back.
    DURING_SENDING = "during_sending"
    #: A whole answer came back.
    AFTER_SENDING = "after_sending"
