"""From one signed body to one answer, whatever server brought it.

The order is fixed: signature, media type, envelope, tenant and destination, expiry, capability and handler, delivery
record, sequence where it is checked, handler. Nothing of a body is believed before its signature. Each failure answers problem details with one of
the fourteen codes, and is logged with ids and reasons only.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import CONTENT_TYPE, GAP_RESOLUTION_TYPE, Envelope, GapResolution
from waybill.contracts.envelope_reader import parse
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import CONTENT_TYPE as RECEIPT_TYPE
from waybill.contracts.status_query import STATUS_QUERY_TYPE, StatusAnswer, StatusQuery, render_status_answer
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from waybill.crypto.verifying import DEFAULT_TOLERANCE, RefuseReason, SignatureHeaders, Verdict, verify
from waybill.crypto.verifying import Refuse as SignatureRefused
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, ContractError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.asgi import Answer, Headers, answer_problem
from waybill.listener.core.checks import check_binding, check_executable
from waybill.listener.core.dedup import Identity
from waybill.listener.core.message import Received, operation_digest
from waybill.listener.executor import Executed, Executor, Handler, Outcome
from waybill.listener.key_source import KeySource
from waybill.listener.store import Claim, PostgresStore

__all__ = ["REPEAT_HEADER", "Binding", "Limits", "Receiver"]

_log = logging.getLogger("waybill.listener")

#: On the answer to a delivery that was executed before.
REPEAT_HEADER: Final = "waybill-repeat"
_ID_MISMATCH: Final = Problem(code=ErrorCode.VALIDATION, reason="id_mismatch", detail="webhook-id is not the body's id")
_MAYBE_NEWER: Final = frozenset({RefuseReason.NO_USABLE_KEY, RefuseReason.SIGNATURE_MISMATCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a listener takes."""

    #: Between the signed timestamp and our clock, either way. Records outlive it by far, so nothing slips between.
    tolerance: timedelta = DEFAULT_TOLERANCE
    #: A clear payload of 256 KiB becomes 350 KiB as base64; above come the attributes.
    max_body_bytes: int = 1_048_576
    #: Only the next sequence of each aggregate: a later one is told what is missing, an older one is refused unless a
    #: gap resolution deferred it. To be set before the first delivery: numbers count from 1.
    in_order: bool = False

    def __post_init__(self) -> None:
        """Refuse a window that would let everything or nothing through."""
        if not timedelta(0) < self.tolerance <= timedelta(days=1):
            raise ConfigError("the tolerance must be above zero and at most a day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """For whom a listener acts."""

    tenant: Tenant
    destination: DestinationName


class Receiver:
    """Verifies, checks and executes; knows nothing of servers."""

    def __init__(
        self,
        binding: Binding,
        keys: KeySource,
        store: PostgresStore,
        handlers: Mapping[str, Handler],
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._binding = binding
        self._keys = keys
        self._handlers = handlers
        self._limits = limits
        self._clock = clock
        self._executor = Executor(store, handlers, clock, in_order=limits.in_order)

    async def answer(self, headers: Headers, body: bytes) -> Answer:
        """Take one signed body and answer; the same whatever server or framework brought it."""
        received_at = self._clock.now()
        verdict = await self._verify(headers, body)
        if isinstance(verdict, SignatureRefused):
            return self._refuse(headers, Problem(code=ErrorCode.AUTH, reason=verdict.reason.value))
        content_type = (headers.get("content-type") or "").partition(";")[0].strip().lower()
        if content_type != CONTENT_TYPE:
            detail = f"expected {CONTENT_TYPE}"
            problem = Problem(code=ErrorCode.VALIDATION, reason="content_type", detail=detail, status=415)
            return self._refuse(headers, problem)
        try:
            message = parse(body)
        except ContractError as error:
            return self._refuse(headers, Problem(code=ErrorCode.VALIDATION, reason="envelope", detail=str(error)))
        claim = _claim(message, body, received_at)
        if str(_id_of(message)) != headers.get(ID_HEADER):
            problem = Problem(code=ErrorCode.VALIDATION, reason="id_mismatch", detail="webhook-id is not the body's id")
            return self._refuse(headers, problem)
        if foreign := check_binding(message, self._binding.tenant, self._binding.destination):
            return self._refuse(headers, foreign)
        return self._report(headers, await self._execute(claim, message))

    async def _execute(
        self, claim: Claim, message: Envelope | GapResolution | StatusQuery
    ) -> Outcome | Problem | StatusAnswer:
        if isinstance(message, StatusQuery):
            return await self._executor.status(claim, message)
        if isinstance(message, GapResolution):
            return await self._executor.note(claim, message)
        capabilities = {name: handler.capability for name, handler in self._handlers.items()}
        refusal = check_executable(message, capabilities, self._clock.now())
        if refusal is not None:
            # What was executed in time is reported, whatever the clock or the handlers say now.
            return await self._executor.known(claim) or refusal
        return await self._executor.execute(claim, Received(envelope=message, received_at=claim.received_at))

    async def _verify(self, headers: Headers, body: bytes) -> Verdict:
        signed = SignatureHeaders(
            webhook_id=headers.get(ID_HEADER),
            timestamp=headers.get(TIMESTAMP_HEADER),
            signature=headers.get(SIGNATURE_HEADER),
        )
        now, tolerance = self._clock.now(), self._limits.tolerance
        verdict = verify(signed, body, await self._keys.current(), now, tolerance)
        if isinstance(verdict, SignatureRefused) and verdict.reason in _MAYBE_NEWER:
            newer = await self._keys.renewed()
            if newer is not None:
                return verify(signed, body, newer, now, tolerance)
        return verdict

    def _report(self, headers: Headers, outcome: Outcome | Problem | StatusAnswer) -> Answer:
        if isinstance(outcome, Problem):
            return self._refuse(headers, outcome)
        if isinstance(outcome, StatusAnswer):
            _log.info("delivery.asked", extra={"delivery_id": outcome.delivery_id, "said": outcome.said.value})
            return Answer(status=200, content_type=RECEIPT_TYPE, body=render_status_answer(outcome))
        if isinstance(outcome, Executed):
            marks = ((REPEAT_HEADER, "true"),) if outcome.is_repeat else ()
            event = "delivery.repeated" if outcome.is_repeat else "delivery.executed"
            _log.info(event, extra={"delivery_id": headers.get(ID_HEADER)})
            return Answer(status=200, content_type=RECEIPT_TYPE, body=outcome.receipt, headers=marks)
        later = outcome.retry_after
        extra = [] if later is None else [("retry-after", str(max(1, math.ceil(later.total_seconds()))))]
        return self._refuse(headers, outcome.problem, *extra)

    def _refuse(self, headers: Headers, problem: Problem, *extra: tuple[str, str]) -> Answer:
        _log.warning(
            "delivery.refused",
            extra={"delivery_id": headers.get(ID_HEADER), "code": problem.code.value, "reason": problem.reason},
        )
        return answer_problem(problem, *extra)


def _id_of(message: Envelope | GapResolution | StatusQuery) -> UUID:
    match message:
        case StatusQuery():
            return message.query_id
        case GapResolution():
            return message.resolution_id
        case Envelope():
            return message.delivery_id


def _claim(message: Envelope | GapResolution | StatusQuery, body: bytes, received_at: datetime) -> Claim:
    if isinstance(message, StatusQuery):
        return _asked(message, received_at)
    if isinstance(message, GapResolution):
        identity = Identity(
            delivery_id=message.resolution_id,
            operation_id=str(message.resolution_id),
            body_digest=sha256(body).digest(),
            operation_digest=sha256(body).digest(),
        )
        return Claim(
            tenant=message.tenant,
            destination=message.destination,
            identity=identity,
            command_type=GAP_RESOLUTION_TYPE,
            aggregate=message.aggregate,
            received_at=received_at,
            expires_at=None,
        )
    identity = Identity(
        delivery_id=message.delivery_id,
        operation_id=message.operation_id,
        body_digest=sha256(body).digest(),
        operation_digest=operation_digest(message),
    )
    return Claim(
        tenant=message.tenant,
        destination=message.destination,
        identity=identity,
        command_type=message.command_type,
        aggregate=message.aggregate,
        received_at=received_at,
        expires_at=message.expires_at,
    )


def _asked(query: StatusQuery, received_at: datetime) -> Claim:
    """Return what the delivery would claim, as far as the question says it."""
    digest = bytes.fromhex(query.body_sha256)
    identity = Identity(
        delivery_id=query.delivery_id,
        operation_id=query.operation_id,
        body_digest=digest,
        operation_digest=digest,
    )
    return Claim(
        tenant=query.tenant,
        destination=query.destination,
        identity=identity,
        command_type=STATUS_QUERY_TYPE,
        aggregate=query.aggregate,
        received_at=received_at,
        expires_at=None,
    )
