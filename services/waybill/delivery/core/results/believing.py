"""Whether a result is believed: what one of the destination's own keys signed, and what names it inside.

Nothing in a record is looked at before its signature. With a wrong clock a result is believed and flagged (CK-3). One
that lacks what closes a delivery (DC-17) is refused, and so is a copy: the delivery goes on waiting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from waybill.contracts.codes import ErrorCode, Phase
from waybill.contracts.receipt import Receipt, render_receipt
from waybill.contracts.result import Result, parse_result
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from waybill.crypto.verifying import SignatureHeaders, VerificationKeys
from waybill.delivery.core.answer import judge_receipt
from waybill.delivery.core.classify import Verdict
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.core.verification import Refusal, believe_result

__all__ = ["CLOCK_IS_WRONG", "Arrived", "Entry", "Heard", "Refused", "hear", "signature_of", "tell_apart"]

_OK: Final = 200
#: What a delivery carries in `detail` whose proof came under a clock that is wrong.
CLOCK_IS_WRONG: Final = "clock_is_wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A record of the topic, as it came."""

    offset: int
    signed: SignatureHeaders
    body: bytes
    #: By the broker's clock.
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A result that is believed."""

    result_id: str
    delivery_id: str
    aggregate: str
    #: What it says, as if it had been the answer to an attempt; no code: it is a proof.
    verdict: Verdict
    key_id: str
    #: How far the broker's clock was ahead of the signed timestamp.
    skew: timedelta
    #: The signer's clock is wrong: nothing may be read out of its times.
    is_quarantined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A record that moves nothing; `reason` is a word programs may branch on."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A record that arrived, and what it is taken for."""

    arrived: Arrived
    taken: Heard | Refused
    #: Of a copy: what it says was said before.
    copy_of: Heard | None = None


def signature_of(headers: Sequence[tuple[str, bytes | None]]) -> SignatureHeaders:
    """Read the three headers of a record; one that is there twice counts as absent."""

    def only(name: str) -> str | None:
        found = [value for key, value in headers if key == name]
        return found[0].decode("ascii", "replace") if len(found) == 1 and found[0] is not None else None

    return SignatureHeaders(
        webhook_id=only(ID_HEADER), timestamp=only(TIMESTAMP_HEADER), signature=only(SIGNATURE_HEADER)
    )


def hear(arrived: Arrived, keys: VerificationKeys, tenant: Tenant, destination: DestinationName) -> Heard | Refused:
    """Decide whether a record is a result of this destination; nothing in it is looked at before its signature.

    Args:
        arrived: as it came.
        keys: of this destination and of no other.
        tenant: whose destination.
        destination: whose topic it is.
    """
    believed = believe_result(arrived.signed, arrived.body, keys, arrived.at)
    if isinstance(believed, Refusal):
        return Refused(reason=believed.problem.reason)
    try:
        result = parse_result(arrived.body)
    except ContractError:
        return Refused(reason="unreadable")
    if foreign := _foreign(result, arrived.signed, tenant, destination):
        return Refused(reason=foreign)
    verdict = _verdict(result)
    if verdict.code is None and believed.is_quarantined:
        verdict = verdict._replace(detail=CLOCK_IS_WRONG)
    if result.receipt is not None and verdict.code is ErrorCode.VALIDATION:
        return Refused(reason=verdict.detail or "receipt_incomplete")
    return Heard(
        result_id=str(result.result_id),
        delivery_id=str(result.delivery_id),
        aggregate=result.aggregate,
        verdict=verdict,
        key_id=believed.key_id,
        skew=believed.skew,
        is_quarantined=believed.is_quarantined,
    )


def tell_apart(
    taken: Sequence[tuple[Arrived, Heard | Refused]], said: Mapping[str, tuple[int, int]], partition: int
) -> list[Entry]:
    """Refuse what says again what was said: a copy proves nothing that its original did not (DC-12).

    Args:
        taken: what arrived on a partition, in the order of offsets.
        said: partition and offset of what was written down before, by the id of the result.
        partition: where they arrived.
    """
    places = dict(said)
    entries = []
    for one, heard in taken:
        place = (partition, one.offset)
        if isinstance(heard, Heard) and places.setdefault(heard.result_id, place) != place:
            entries.append(Entry(arrived=one, taken=Refused(reason="replayed"), copy_of=heard))
        else:
            entries.append(Entry(arrived=one, taken=heard))
    return entries


def _foreign(result: Result, signed: SignatureHeaders, tenant: Tenant, destination: DestinationName) -> str | None:
    if str(result.result_id) != signed.webhook_id:
        return "id_mismatch"
    if result.tenant != tenant:
        return "tenant"
    return "destination" if result.destination != destination else None


def _verdict(result: Result) -> Verdict:
    if result.receipt is not None:
        return _of_receipt(result.receipt, str(result.delivery_id))
    assert result.problem is not None
    problem = result.problem
    return Verdict(
        code=problem.code,
        phase=Phase.AFTER_SENDING,
        detail=problem.reason,
        may_have_acted=problem.code is ErrorCode.AMBIGUOUS_RESULT,
    )


def _of_receipt(receipt: Receipt, delivery_id: str) -> Verdict:
    """Judge a receipt as if it had been the answer; no status came with it.

    Here nobody knows of which command it speaks, and from afar "it is not there" says the least: it proves nothing.
    """
    found = judge_receipt(_OK, render_receipt(receipt), delivery_id, absence_proves=False)
    return found._replace(http_status=None)
