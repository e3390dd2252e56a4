"""Taking a result from a destination that cannot write to Kafka, and publishing it as it came.

Nothing is changed and nothing believed: the worker that owns the delivery verifies the same bytes under the same headers
again. What is refused is written down, with who tried.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from waybill.access import Principal
from waybill.contracts.fabric import FabricConfig
from waybill.contracts.names import results_topic
from waybill.contracts.problem import Problem
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from waybill.crypto.verifying import SignatureHeaders, VerificationKeys
from waybill.delivery.core.results.believing import Arrived, Heard, Refused, hear
from waybill.infra.log import get_logger
from waybill.infra.publisher import Publisher
from waybill.kernel.clock import Clock
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import DestinationName
from waybill.submission.core.stating import BROKERS_AWAY, NOT_DECLARED, REPLAYED, contradicts, problem_of
from waybill.submission.deliveries import Deliveries

__all__ = ["Posted", "RefusedResults", "Stating"]

_SAID: Final = """
SELECT FROM delivery.result
WHERE tenant = %s AND destination = %s AND result_id = %s::uuid AND weighed <> 'refused'
"""
_REFUSED: Final = """
INSERT INTO submission.refused_result (refused_at, tenant, principal, key_id, reason, result_id, body_sha256)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_LIST: Final = """
SELECT refused_at, principal, key_id, reason, result_id::text, body_sha256 FROM submission.refused_result
WHERE tenant = %(tenant)s AND (%(principal)s::text IS NULL OR principal = %(principal)s)
  AND (%(result_id)s::uuid IS NULL OR result_id = %(result_id)s)
ORDER BY position DESC LIMIT %(limit)s
"""


_COPIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """A result as it was posted."""

    signed: SignatureHeaders
    body: bytes

    def headers(self) -> list[tuple[str, bytes]]:
        """Return the headers of the record it becomes, unchanged."""
        named = (
            (ID_HEADER, self.signed.webhook_id),
            (TIMESTAMP_HEADER, self.signed.timestamp),
            (SIGNATURE_HEADER, self.signed.signature),
        )
        return [(name, value.encode()) for name, value in named if value is not None]


class RefusedResults:
    """What was refused, in the control database."""

    def __init__(self, pool: AsyncConnectionPool[Any], clock: Clock) -> None:
        self._pool, self._clock = pool, clock

    async def add(self, who: Principal, reason: str, posted: Posted) -> None:
        """Write down who posted what, and why it was refused."""
        values = (
            self._clock.now(),
            who.tenant,
            who.name,
            who.key_id,
            reason,
            _id_of(posted),
            hashlib.sha256(posted.body).hexdigest(),
        )
        async with self._pool.connection() as connection:
            await connection.execute(_REFUSED, values)

    async def said(self, who: Principal, result_id: str) -> bool:
        """Whether a worker has heard and written down a result of this id."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_SAID, (who.tenant, who.name, result_id))
            return await cursor.fetchone() is not None

    @staticmethod
    def newest(
        connection: psycopg.Connection[Any], tenant: str, limit: int, principal: str | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """Return what was refused of a tenant, or of one of its destinations, newest first."""
        return _refused(connection, tenant=tenant, principal=principal, result_id=None, limit=limit)

    @staticmethod
    def of(connection: psycopg.Connection[Any], tenant: str, result_id: UUID) -> Sequence[Mapping[str, Any]]:
        """Return what was refused under an id, newest first, at most a hundred."""
        return _refused(connection, tenant=tenant, principal=None, result_id=result_id, limit=_COPIES)


class Stating:
    """The door for results; a key with its scope speaks for the destination that its principal is named after."""

    def __init__(
        self,
        config: Callable[[], FabricConfig],
        deliveries: Deliveries,
        refused: RefusedResults,
        publisher: Publisher | None,
        clock: Clock,
    ) -> None:
        self._config, self._deliveries, self._refused = config, deliveries, refused
        self._publisher, self._clock = publisher, clock
        self._log = get_logger("submission")

    async def state(self, who: Principal, posted: Posted) -> str | Problem:
        """Publish a result and return its id, or say why not; what is refused is written down."""
        destination = self._config().destination(who.tenant, who.name)
        if destination is None or destination.results is None:
            return NOT_DECLARED
        arrived = Arrived(offset=0, signed=posted.signed, body=posted.body, at=self._clock.now())
        keys = VerificationKeys.from_text(*destination.results.keys)
        heard = hear(arrived, keys, who.tenant, destination.name)
        problem = problem_of(heard.reason) if isinstance(heard, Refused) else await self._against_known(who, heard)
        if problem is not None:
            self._log.warning("result.refused", principal=who.name, key_id=who.key_id, reason=problem.reason)
            await self._refused.add(who, problem.reason, posted)
            return problem
        assert isinstance(heard, Heard)
        return await self._publish(who, heard, posted)

    async def _against_known(self, who: Principal, heard: Heard) -> Problem | None:
        known = await self._deliveries.one(who.tenant, UUID(heard.delivery_id))
        if (problem := contradicts(heard, known, who.name)) is not None:
            return problem
        return REPLAYED if await self._refused.said(who, heard.result_id) else None

    async def _publish(self, who: Principal, heard: Heard, posted: Posted) -> str | Problem:
        if self._publisher is None:
            return BROKERS_AWAY
        topic = results_topic(who.tenant, DestinationName(who.name))
        try:
            await self._publisher.publish(topic, heard.aggregate.encode(), posted.body, posted.headers())
        except UnavailableError as error:
            self._log.warning("result.not_published", result_id=heard.result_id, reason=str(error))
            return BROKERS_AWAY
        return heard.result_id


def _refused(connection: psycopg.Connection[Any], **values: object) -> Sequence[Mapping[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_LIST.encode(), values).fetchall()


def _id_of(posted: Posted) -> UUID | None:
    try:
        return UUID(posted.signed.webhook_id or "")
    except ValueError:
        return None
