"""What an attempt came to, as an intent keeps it: a JSON document of codes, numbers and references.

A delivery whose attempt was answered is settled from this document and never sent again, by whoever owns its
partition then. A document of an unknown form is refused: guessing could send twice.
"""

from dataclasses import asdict
from typing import Any, Final

from waybill.contracts.codes import ErrorCode, Phase
from waybill.delivery.core.classify import Proven, Verdict
from waybill.delivery.core.records import Try
from waybill.kernel.errors import ContractError

__all__ = ["as_document", "read_document"]

_FORM: Final = 1


def as_document(verdict: Verdict, attempt: Try) -> dict[str, Any]:
    """Return the document of an attempt that ended."""
    return {
        "form": _FORM,
        "code": verdict.code.value if verdict.code else None,
        "phase": verdict.phase.value,
        "detail": verdict.detail,
        "may_have_acted": verdict.may_have_acted,
        "http_status": verdict.http_status,
        "proven": asdict(verdict.proven) if verdict.proven else None,
        "retry_after_s": verdict.retry_after_s,
        "expected_sequence": verdict.expected_sequence,
        "accepted_for_s": verdict.accepted_for_s,
        "number": attempt.number,
        "started_ms": attempt.started_ms,
        "ended_ms": attempt.ended_ms,
        "body_sha256": attempt.body_sha256,
    }


def read_document(document: dict[str, Any], epoch: str) -> tuple[Verdict, Try]:
    """Return what `as_document` was given; the try carries the epoch it was made under.

    Raises:
        ContractError: the document is of a form this version does not know.
    """
    try:
        if document["form"] != _FORM:
            raise ContractError("an intent's answer has a form this version does not know")
        code, proven = document["code"], document["proven"]
        verdict = Verdict(
            code=ErrorCode(code) if code is not None else None,
            phase=Phase(document["phase"]),
            detail=document["detail"],
            may_have_acted=document["may_have_acted"],
            http_status=document["http_status"],
            proven=Proven(**proven) if proven is not None else None,
            retry_after_s=document["retry_after_s"],
            expected_sequence=document.get("expected_sequence"),
            accepted_for_s=document.get("accepted_for_s"),
        )
        attempt = Try(document["number"], document["started_ms"], document["ended_ms"], document["body_sha256"], epoch)
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError("an intent's answer is damaged") from error
    return verdict, attempt
