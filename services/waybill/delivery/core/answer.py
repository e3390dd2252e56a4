"""What an HTTP answer proves: a receipt, a status, a refusal with a code, or nothing."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.fabric import Proof, ResultSource
from waybill.contracts.json_text import read_json
from waybill.contracts.problem import parse_problem
from waybill.contracts.receipt import ReceiptStatus, parse_receipt
from waybill.delivery.core.classify import Proven, Verdict, judge_problem, judge_status
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import DeliveryId

__all__ = ["ABSENT", "accepted", "judge_answer", "judge_receipt", "retry_after_s"]

#: A wish longer than this is cut: the expiry of the command decides anyway.
MAX_RETRY_AFTER_S: Final = 86_400.0
_ACCEPTED: Final = 202
#: The word for an absence that proves nothing here.
ABSENT: Final = "absent"
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH: Final = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME: Final = r"(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
#: IMF-fixdate, RFC 850, asctime.
_DATES: Final = (
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT"),
    re.compile(
        r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, "
        rf"(?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"
    ),
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH} (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})"),
)


def accepted(status: int, source: ResultSource | None) -> Verdict | None:
    """Return that a destination took a delivery and says later what it did; None where its answer says something else."""
    if source is None or status != _ACCEPTED:
        return None
    return Verdict(
        code=None,
        phase=Phase.AFTER_SENDING,
        detail="accepted",
        may_have_acted=True,
        http_status=status,
        accepted_for_s=source.wait_s,
    )


def judge_answer(
    status: int, body: bytes, *, delivery_id: str, proof: Proof, wait_s: float | None, absence_proves: bool = False
) -> Verdict:
    """Judge a whole answer to one attempt.

    Args:
        status: as it came; redirects are answers like any other.
        body: as it came, up to the client's limit.
        delivery_id: a receipt that speaks of another one proves nothing here.
        proof: what closes a delivery at this destination.
        wait_s: what `Retry-After` asked for, in seconds.
        absence_proves: whether a receipt `absent` closes deliveries of this command type here.
    """
    if not 200 <= status < 300 or status == _ACCEPTED:
        problem = parse_problem(body, status) if body else None
        if problem is None:
            return judge_status(status, retry_after_s=wait_s)
        return judge_problem(problem, retry_after_s=wait_s)
    if proof is Proof.STATUS:
        return Verdict(code=None, phase=Phase.AFTER_SENDING, http_status=status)
    proven = _quick(body, delivery_id)
    if proven is not None:
        return Verdict(code=None, phase=Phase.AFTER_SENDING, http_status=status, proven=proven)
    return judge_receipt(status, body, delivery_id, absence_proves=absence_proves)


def _quick(body: bytes, delivery_id: str) -> Proven | None:
    """Read a complete receipt of the plain kind; None sends it the careful way, which also says what is wrong."""
    try:
        found = read_json(body)
        if found["status"] != "done" or found.get("delivery_id", delivery_id) != delivery_id or len(body) > 4096:
            return None
        version, evidence = found["source_version"], found["evidence"]
        count, digest = found.get("count"), found.get("digest")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if type(version) is not str or type(evidence) is not str or not version or not evidence:
        return None
    if (digest is not None and type(digest) is not str) or (count is None and not digest):
        return None
    if count is not None and (type(count) is not int or not 0 <= count < 2**63):
        return None
    return Proven(status="done", source_version=version, count=count, digest=digest, evidence=evidence)


def judge_receipt(status: int, body: bytes, delivery_id: str, *, absence_proves: bool) -> Verdict:
    """Judge a receipt that came with a status; it closes a delivery when the verdict has no code.

    That something is not there never proves by itself that it was taken away: it may never have been there, or be
    somewhere else. It closes a delivery only where the destination declared that meaning (AM-4).
    """
    try:
        receipt = parse_receipt(body)
    except ContractError:
        return judge_status(status, detail="receipt_unreadable")
    proven = Proven(
        status=receipt.status.value if receipt.status else None,
        source_version=receipt.source_version,
        count=receipt.count,
        digest=receipt.digest,
        evidence=receipt.evidence,
    )
    if not receipt.speaks_of(DeliveryId(UUID(delivery_id))):
        return judge_status(status, detail="receipt_of_another_delivery")
    missing = receipt.missing()
    if missing:
        verdict = judge_status(status, detail=f"receipt_without_{missing[0]}")
    elif receipt.status is ReceiptStatus.PARTIAL:
        return Verdict(
            code=ErrorCode.PARTIAL_SOURCE,
            phase=Phase.AFTER_SENDING,
            detail="partial",
            may_have_acted=True,
            http_status=status,
            proven=proven,
        )
    elif receipt.contradicts_itself():
        verdict = judge_status(status, detail="absent_yet_counted")
    elif receipt.status is ReceiptStatus.ABSENT and not absence_proves:
        code, phase = ErrorCode.NOT_FOUND, Phase.AFTER_SENDING
        return Verdict(code=code, phase=phase, detail=ABSENT, http_status=status, proven=proven)
    else:
        return Verdict(code=None, phase=Phase.AFTER_SENDING, http_status=status, proven=proven)
    return verdict


def retry_after_s(text: str | None, now: datetime) -> float | None:
    """Read `Retry-After`, seconds or a date, into seconds from now; None when absent or nonsense.

    A date may have any of the three forms of RFC 9110, 5.6.7; one that is past asks for no wait.
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER_S)
    instant = _http_date(text, now)
    return None if instant is None else min(max((instant - now).total_seconds(), 0.0), MAX_RETRY_AFTER_S)


def _http_date(text: str, now: datetime) -> datetime | None:
    found = next((match for form in _DATES if (match := form.fullmatch(text))), None)
    if found is None:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:  # of this century, unless that is more than fifty years ahead
        year += now.year // 100 * 100
        year -= 100 if year > now.year + 50 else 0
    hour, minute, second = (int(part) for part in found["time"].split(":"))
    try:
        midnight = datetime(year, _MONTHS.index(found["month"]) + 1, int(found["day"]), tzinfo=UTC)
    except ValueError:
        return None
    if hour > 23 or minute > 59 or second > 60:  # a leap second is a second
        return None
    return midnight + timedelta(hours=hour, minutes=minute, seconds=second)
