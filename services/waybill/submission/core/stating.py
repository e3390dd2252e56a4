"""What a destination that cannot write to Kafka is answered when it posts a result.

Here a result is judged exactly as the worker judges it that reads it later, and published as it came: what is taken
here was not believed yet by anybody who moves a delivery.
"""

from collections.abc import Mapping
from typing import Any, Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem
from waybill.delivery.core.results.believing import Heard

__all__ = ["BROKERS_AWAY", "NOT_DECLARED", "REPLAYED", "contradicts", "problem_of"]

NOT_DECLARED: Final = Problem(
    code=ErrorCode.POLICY_BLOCK,
    reason="results_not_declared",
    detail="the principal of this key names no destination of its tenant that declares results",
)
REPLAYED: Final = Problem(
    code=ErrorCode.VERSION_CONFLICT,
    reason="replayed",
    detail="a result of this id was heard before; saying it again moves nothing",
)
BROKERS_AWAY: Final = Problem(
    code=ErrorCode.SOURCE_UNAVAILABLE,
    reason="brokers_unavailable",
    detail="it may have been published all the same: post the same bytes again, a result is known by its id",
)
#: Reasons that are about the form; every other one is about who says it.
_UNREADABLE: Final = {"missing_header", "malformed_header", "unreadable"}
_FORGED: Final = {"no_usable_key", "signature_mismatch", "tenant", "destination", "id_mismatch"}


def problem_of(reason: str) -> Problem:
    """Return what is answered when the judgement of the worker is to refuse, by its reason."""
    if reason in _FORGED:
        return Problem(code=ErrorCode.AUTHZ, reason=reason, detail="this is not a result that the destination signed")
    status = 400 if reason in _UNREADABLE else 422
    return Problem(code=ErrorCode.VALIDATION, reason=reason, detail="this is no result", status=status)


def contradicts(heard: Heard, known: Mapping[str, Any] | None, destination: str) -> Problem | None:
    """Return a problem where what is known of the delivery is another destination's or another aggregate's.

    Args:
        heard: the result.
        known: the tenant's delivery in the read model, which is a moment behind; None where it has none.
        destination: who says it.
    """
    if known is None or (known["destination"], known["aggregate"]) == (destination, heard.aggregate):
        return None
    return Problem(
        code=ErrorCode.AUTHZ, reason="another_delivery", detail="the delivery is not of this destination and aggregate"
    )
