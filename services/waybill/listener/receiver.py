"""From one signed body to one answer, whatever server brought it.

What is checked, in which order, is `core.verification`; here are the keys, the clock, the execution and the answer.
Each failure answers problem details with one of the fourteen codes, and is logged with its check, ids and reasons only.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from waybill.contracts.baseline import BaselinePart
from waybill.contracts.envelope import GapResolution
from waybill.contracts.fabric import Profile
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import CONTENT_TYPE as RECEIPT_TYPE
from waybill.contracts.status_query import StatusAnswer, StatusQuery, render_status_answer
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signer
from waybill.crypto.verifying import DEFAULT_TOLERANCE, SignatureHeaders
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError
from waybill.listener.asgi import Answer, Headers, answer_problem
from waybill.listener.baselines import BaselineDesk
from waybill.listener.core.claims import claim_of
from waybill.listener.core.message import Received
from waybill.listener.core.policy import Rules
from waybill.listener.core.verification import (
    Arrival,
    Believed,
    Binding,
    Check,
    Door,
    Message,
    Refusal,
    Terms,
    believe,
    is_key_missing,
)
from waybill.listener.executor import Executed, Executor, Handler, Outcome, PolicyHook, Refused
from waybill.listener.key_source import KeySource
from waybill.listener.stores.port import DedupStore

__all__ = ["REPEAT_HEADER", "Heard", "Limits", "PolicySource", "Receiver", "word_of"]

_log = logging.getLogger("waybill.listener")

#: On the answer to a delivery that was executed before.
REPEAT_HEADER: Final = "waybill-repeat"


class PolicySource(Protocol):
    """Where the rules of a policy come from."""

    def current(self) -> Rules:
        """Return what is in force; raises ConfigError when there was never any."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a listener takes."""

    #: Between the signed timestamp and our clock, either way. Records outlive it by far, so nothing slips between.
    tolerance: timedelta = DEFAULT_TOLERANCE
    #: A clear payload of 256 KiB becomes 350 KiB as base64; above come the attributes.
    max_body_bytes: int = 1_048_576
    #: Requests read or executed at one time; one more is answered 429, before its body is read.
    max_in_flight: int = 1_024
    #: Only the next sequence of each aggregate: a later one is told what is missing, an older one is refused unless a
    #: gap resolution deferred it. To be set before the first delivery: numbers count from 1.
    in_order: bool = False
    #: The profile declared for this destination in `fabric.yaml`; what the store makes true when it is not said here.
    profile: Profile | None = None
    #: The longest ttl of a route to here: the store must recognise a repeat at least as long.
    retry_horizon: timedelta | None = None
    #: What must not be done here although it was rightly ordered: `PolicyFile(path)`, or fixed `Rules`.
    policy: PolicySource | None = None

    def __post_init__(self) -> None:
        """Refuse a window that would let everything or nothing through."""
        if not timedelta(0) < self.tolerance <= timedelta(days=1):
            raise ConfigError("the tolerance must be above zero and at most a day")
        if self.max_in_flight < 1:
            raise ConfigError("max_in_flight must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came of a body that came in."""

    #: What was signed; None when it is not believed, or signed for somebody else.
    message: Message | None
    outcome: Outcome | StatusAnswer


def word_of(outcome: Outcome | StatusAnswer) -> str:
    """Return what an outcome is counted as."""
    match outcome:
        case StatusAnswer():
            return "asked"
        case Executed():
            return "repeated" if outcome.is_repeat else "executed"
        case Refused():
            return outcome.problem.code.value


class Receiver:
    """Verifies, checks and executes; knows nothing of servers."""

    def __init__(
        self,
        binding: Binding,
        keys: KeySource,
        store: DedupStore,
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
        #: Asks for baselines, and takes them.
        self.baselines = BaselineDesk(binding, store, clock, in_order=limits.in_order)

    def ask(self, policy: PolicyHook) -> None:
        """Ask the destination's own code, as the last check of each command."""
        self._executor.policy = policy

    def sign(self, signer: Signer) -> None:
        """Sign receipts from now on."""
        self._executor.signer = signer

    async def answer(self, headers: Headers, body: bytes) -> Answer:
        """Take one signed request and answer; the same whatever server or framework brought it."""
        return self._report(headers, (await self.hear(Door.HTTP, headers, body)).outcome)

    async def hear(self, door: Door, headers: Headers, body: bytes) -> Heard:
        """Take one signed body that came by a door, and say what came of it."""
        received_at = self._clock.now()
        signed = SignatureHeaders(
            webhook_id=headers.get(ID_HEADER),
            timestamp=headers.get(TIMESTAMP_HEADER),
            signature=headers.get(SIGNATURE_HEADER),
        )
        arrival = Arrival(door=door, signed=signed, content_type=headers.get("content-type"), body=body)
        terms = self._terms()
        believed = await self._believe(arrival, terms)
        if isinstance(believed, Refusal):
            return Heard(message=None, outcome=Refused(problem=believed.problem, check=believed.check))
        outcome = await self._execute(believed.message, body, terms, received_at)
        return Heard(message=believed.message, outcome=outcome)

    def _terms(self) -> Terms:
        """Return what is taken now; handlers may be registered while the listener runs."""
        capabilities = {name: handler.capability for name, handler in self._handlers.items()}
        policy = self._limits.policy
        return Terms(
            binding=self._binding,
            capabilities=capabilities,
            tolerance=self._limits.tolerance,
            rules=policy.current() if policy is not None else Rules(),
        )

    async def _believe(self, arrival: Arrival, terms: Terms) -> Believed | Refusal:
        now = self._clock.now()
        found = believe(arrival, await self._keys.current(), terms, now)
        if isinstance(found, Refusal) and is_key_missing(found):
            newer = await self._keys.renewed()
            if newer is not None:
                return believe(arrival, newer, terms, now)
        return found

    async def _execute(
        self, message: Message, body: bytes, terms: Terms, received_at: datetime
    ) -> Outcome | StatusAnswer:
        if isinstance(message, BaselinePart):
            return await self.baselines.take(message, received_at)
        claim = claim_of(message, body, received_at)
        if isinstance(message, StatusQuery):
            return await self._executor.status(claim, message)
        if isinstance(message, GapResolution):
            return await self._executor.note(claim, message)
        return await self._executor.execute(claim, Received(envelope=message, received_at=received_at), terms)

    def _report(self, headers: Headers, outcome: Outcome | StatusAnswer) -> Answer:
        if isinstance(outcome, StatusAnswer):
            _log.info("delivery.asked", extra={"delivery_id": outcome.delivery_id, "said": outcome.said.value})
            body = render_status_answer(outcome)
            return Answer(status=200, content_type=RECEIPT_TYPE, body=body, result="asked")
        if isinstance(outcome, Executed):
            marks = ((REPEAT_HEADER, "true"),) if outcome.is_repeat else ()
            result = word_of(outcome)
            _log.info(f"delivery.{result}", extra={"delivery_id": headers.get(ID_HEADER)})
            return Answer(status=200, content_type=RECEIPT_TYPE, body=outcome.receipt, headers=marks, result=result)
        later = outcome.retry_after
        extra = [] if later is None else [("retry-after", str(max(1, math.ceil(later.total_seconds()))))]
        return self._refuse(headers, outcome.problem, outcome.check, *extra)

    def _refuse(self, headers: Headers, problem: Problem, check: Check | None, *extra: tuple[str, str]) -> Answer:
        _log.warning(
            "delivery.refused",
            extra={
                "delivery_id": headers.get(ID_HEADER),
                "check": check.value if check is not None else None,
                "code": problem.code.value,
                "reason": problem.reason,
            },
        )
        return answer_problem(problem, *extra)
