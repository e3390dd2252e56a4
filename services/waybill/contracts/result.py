"""A result: what a destination says later of a delivery it accepted, done with a receipt or refused with a problem.

An event of its own type under an id of its own, signed by the destination as deliveries are signed by the tenant. It
names tenant, destination, aggregate and delivery inside what is signed, so that a copy on another topic says nothing
there. It is JSON and not Avro: what was signed is what was sent, and a listener needs no registry to say what it did.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from waybill.contracts.problem import Problem, parse_problem, render_problem
from waybill.contracts.receipt import Receipt, parse_receipt, render_receipt
from waybill.kernel.clock import format_instant, parse_instant
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import Aggregate, DeliveryId, DestinationName, Tenant

__all__ = ["MAX_BYTES", "RESULT_TYPE", "Result", "parse_result", "render_result"]

#: The event type of a result.
RESULT_TYPE: Final = "waybill.result"
#: A result larger than this is not read: a receipt and what it is about.
MAX_BYTES: Final = 131_072
_MEMBERS: Final = ("specversion", "id", "source", "type", "subject", "time", "tenant", "destination")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One result: exactly one of `receipt` and `problem` is there."""

    #: Its own; the same result published twice keeps it.
    result_id: uuid.UUID
    tenant: Tenant
    destination: DestinationName
    aggregate: Aggregate
    delivery_id: DeliveryId
    #: The destination's clock.
    stated_at: datetime
    receipt: Receipt | None = None
    problem: Problem | None = None

    def __post_init__(self) -> None:
        """Refuse what says both or nothing."""
        if (self.receipt is None) == (self.problem is None):
            raise ValueError("a result has a receipt or a problem")


def render_result(result: Result) -> bytes:
    """Return the body of a result, the same bytes for the same result."""
    data: dict[str, object] = {"delivery_id": str(result.delivery_id)}
    if result.receipt is not None:
        data["receipt"] = json.loads(render_receipt(result.receipt))
    if result.problem is not None:
        data["problem"] = json.loads(render_problem(result.problem))
    document = {
        "specversion": "1.0",
        "id": str(result.result_id),
        "source": f"urn:waybill:listener:{result.tenant}:{result.destination}",
        "type": RESULT_TYPE,
        "subject": result.aggregate,
        "time": format_instant(result.stated_at),
        "datacontenttype": "application/json",
        "tenant": result.tenant,
        "destination": result.destination,
        "data": data,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def parse_result(body: bytes) -> Result:
    """Read a result; members nobody knows are ignored.

    Raises:
        ContractError: it is no result, or a member is there twice. Names the member only.
    """
    if len(body) > MAX_BYTES:
        raise ContractError(f"the result is larger than {MAX_BYTES} bytes")
    try:
        document = json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ContractError("the result is no JSON") from error
    texts = _texts(document)
    if texts["type"] != RESULT_TYPE or texts["specversion"] != "1.0":
        raise ContractError("this is no result")
    data = document.get("data")
    if not isinstance(data, dict):
        raise ContractError("result member data is no object")
    receipt, problem = data.get("receipt"), data.get("problem")
    if (receipt is None) == (problem is None):
        raise ContractError("a result has a receipt or a problem")
    try:
        return Result(
            result_id=uuid.UUID(texts["id"]),
            tenant=Tenant(texts["tenant"]),
            destination=DestinationName(texts["destination"]),
            aggregate=Aggregate(texts["subject"]),
            delivery_id=DeliveryId(uuid.UUID(str(data.get("delivery_id")))),
            stated_at=parse_instant(texts["time"]),
            receipt=None if receipt is None else parse_receipt(json.dumps(receipt).encode()),
            problem=None if problem is None else _problem(problem),
        )
    except ValueError as error:
        raise ContractError("result member id, time or delivery_id is malformed") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ContractError("a member of the result is there twice")
    return found


def _texts(document: object) -> Mapping[str, str]:
    if not isinstance(document, dict):
        raise ContractError("the result is no JSON object")
    for name in _MEMBERS:
        if not isinstance(document.get(name), str):
            raise ContractError(f"result member {name} is no text")
    return {name: document[name] for name in _MEMBERS}


def _problem(document: object) -> Problem:
    problem = parse_problem(json.dumps(document).encode(), 0)
    if problem is None:
        raise ContractError("result member problem is none of ours")
    return problem
