"""One question to one destination: rendered, signed as a delivery is, posted, judged."""

from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from waybill.contracts.envelope import CONTENT_TYPE
from waybill.contracts.fabric import StatusSource
from waybill.contracts.status_query import StatusQuery, render_status_query, status_query_id
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from waybill.delivery.asking.statements import Asked
from waybill.delivery.core.asking import Heard, hear
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.records import millis
from waybill.delivery.sender import Target
from waybill.infra.http_client import PostError
from waybill.kernel.clock import Clock
from waybill.kernel.errors import InvariantBroken
from waybill.kernel.ids import DeliveryId

__all__ = ["Answered", "ask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question and what came of it."""

    heard: Heard
    asked: Asked


async def ask(target: Target, source: StatusSource, item: Item, clock: Clock, worker: str) -> Answered:
    """Ask a destination what became of a delivery.

    Raises:
        ContractError: its body cannot be rendered, so nobody can say which delivery is meant.
    """
    command, delivery_id = item.command, item.delivery_id
    if command is None or delivery_id is None:
        raise InvariantBroken("asked about a delivery that was not looked into")
    body_sha256 = sha256(target.body_of(item)).hexdigest()
    asked_at = clock.now()
    delivery = DeliveryId(UUID(delivery_id))
    query = StatusQuery(
        query_id=status_query_id(delivery, millis(asked_at), worker),
        tenant=target.config.tenant,
        destination=target.name,
        aggregate=command.aggregate,
        source=command.source,
        asked_at=asked_at,
        config_version=target.recorder.config_version,
        delivery_id=delivery,
        operation_id=command.operation_id or delivery_id,
        body_sha256=body_sha256,
    )
    query_id = str(query.query_id)
    heard = await _post(target, source, query_id, render_status_query(query), item, clock)
    asked = Asked(
        query_id=query_id,
        worker=worker,
        asked_at=asked_at,
        answered_at=clock.now(),
        body_sha256=body_sha256,
        detail=heard.detail,
        http_status=heard.http_status,
        answer_sha256=heard.answer_sha256,
    )
    return Answered(heard=heard, asked=asked)


async def _post(target: Target, source: StatusSource, query_id: str, body: bytes, item: Item, clock: Clock) -> Heard:
    timestamp = int(clock.now().timestamp())
    headers = [
        ("content-type", CONTENT_TYPE),
        (ID_HEADER, query_id),
        (TIMESTAMP_HEADER, str(timestamp)),
        (SIGNATURE_HEADER, target.signer.sign(query_id, timestamp, body)),
    ]
    try:
        answer = await target.client.post(source.url, headers, body)
    except PostError as error:
        return Heard(said=None, detail=error.failure.value)
    return hear(
        answer.status,
        answer.body,
        query_id=query_id,
        delivery_id=item.delivery_id or "",
        proof=target.config.proof,
        absence_proves=target.absence_proves(item),
    )
