"""Executing a believed command once: claim, judge, call, complete, commit.

Whatever door brought the command, the steps are the same and lie in one transaction (GW-6). It is claimed before it is
judged: a copy that comes too late waits for the one under way, and reports what that one did. A handler that
refuses or fails leaves nothing behind, not even the record of the delivery: the sender's next attempt, or a redrive
after the listener was mended, is a first one.

Where the effect is elsewhere, the claim commits first and is pending. An attempt that meets it pending asks the
handler's `recover` whether it happened, and only what did not happen is judged and begun anew.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias, assert_never

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import GapResolution
from waybill.contracts.fabric import Profile
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import Receipt, ReceiptStatus, parse_receipt, render_receipt
from waybill.contracts.status_query import Said, StatusAnswer, StatusQuery
from waybill.crypto.sealing import UnsealError
from waybill.crypto.signing import Signer
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, InvariantBroken, TransientError
from waybill.listener.core.claims import Claim
from waybill.listener.core.dedup import Pending, Repeat, Stored, decide_pending
from waybill.listener.core.message import Done, Received, Refuse, build_receipt
from waybill.listener.core.policy import Block, blocked
from waybill.listener.core.signed_receipts import sign_receipt
from waybill.listener.core.verification import (
    ANY_TYPE,
    Admit,
    Capability,
    Check,
    Lane,
    Refusal,
    Standing,
    Terms,
    admit,
    judge_known,
)
from waybill.listener.stores.port import DedupStore, Effect, Found, UnderWayError, Work

__all__ = ["Executed", "Executor", "Handler", "HandlerFunction", "Outcome", "PolicyHook", "RecoverFunction", "Refused"]

_log = logging.getLogger("waybill.listener")

#: Called with the command and the open transaction; with or without `async`.
HandlerFunction: TypeAlias = Callable[[Received, Any], Awaitable[Done] | Done]
#: Called likewise: what happened, or None when nothing did.
RecoverFunction: TypeAlias = Callable[[Received, Any], Awaitable[Done | None] | Done | None]
#: Called with the command as the last check; what blocks it, or None.
PolicyHook: TypeAlias = Callable[[Received], Awaitable[Block | None] | Block | None]
#: When a database that does not answer may be asked again.
_STORE_RETRY: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A handler and what it declares."""

    function: HandlerFunction
    capability: Capability
    #: Finds out about an attempt that may have acted; only where the effect is elsewhere.
    recover: RecoverFunction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """It is done, now or before."""

    receipt: bytes
    is_repeat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was done."""

    problem: Problem
    retry_after: timedelta | None = None
    #: Which check of the verification it failed; None when it passed them all.
    check: Check | None = None


Outcome: TypeAlias = Executed | Refused


class _SettledError(Exception):
    """The verification settled it: rolls the claim back."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One delivery on its way through."""

    claim: Claim
    command: Received
    terms: Terms


class Executor:
    """Runs handlers over a store."""

    def __init__(
        self,
        store: DedupStore,
        handlers: Mapping[str, Handler],
        clock: Clock,
        *,
        in_order: bool = False,
    ) -> None:
        """Take what it needs; `in_order` refuses what is not the next one of its aggregate."""
        self._store = store
        self._in_order = in_order
        self._handlers = handlers
        self._clock = clock
        #: The destination's own code, asked as the last check.
        self.policy: PolicyHook | None = None
        #: Signs receipts; None leaves them unsigned.
        self.signer: Signer | None = None

    async def execute(self, claim: Claim, command: Received, terms: Terms) -> Outcome:
        """Execute a believed command, report what was done before, or refuse it.

        Raises as the store's `open` does; everything later is an outcome.
        """
        job = _Job(claim=claim, command=command, terms=terms)
        if self._store.memory.effect is Effect.ELSEWHERE:
            return await self._answered(claim, lambda: self._elsewhere(job))
        return await self._answered(claim, lambda: self._inside(job))

    async def note(self, claim: Claim, gap: GapResolution) -> Outcome:
        """Record a gap resolution, and what it says where sequences are checked."""

        async def noted() -> Outcome:
            async with self._store.transaction() as work:
                found = await work.claim(claim)
                if isinstance(found, Stored):
                    raise _SettledError(self._settled(judge_known(found, claim.identity)))
                if self._in_order:
                    await work.note(claim, gap)
                receipt = Receipt(
                    status=ReceiptStatus.DONE,
                    delivery_id=str(gap.resolution_id),
                    operation_id=claim.identity.operation_id,
                    source_version=str(gap.entries[-1].sequence),
                    count=len(gap.entries),
                    evidence=f"urn:waybill:gap-resolution:{gap.resolution_id}",
                    received_at=claim.received_at,
                    executed_at=self._clock.now(),
                )
                return await self._complete(work, claim, receipt)

        return await self._answered(claim, noted)

    async def _inside(self, job: _Job) -> Outcome:
        async with self._store.transaction() as work:
            lane = await self._judge(work, job, await work.claim(job.claim))
            return await self._run(work, job, lane)

    async def _elsewhere(self, job: _Job) -> Outcome:
        async with self._store.transaction() as work:
            found = await work.claim(job.claim)
            if isinstance(found, Pending):
                if conflict := decide_pending(found, job.claim.identity):
                    raise _SettledError(Refused(problem=conflict.problem, check=Check.SEQUENCE))
            else:
                await self._judge(work, job, found)
        try:
            async with self._store.transaction() as work:
                return await self._resumed(work, job, may_have_acted=isinstance(found, Pending))
        except (_SettledError, Refuse):
            async with self._store.transaction() as work:
                await work.forget(job.claim)
            raise

    async def _resumed(self, work: Work, job: _Job, *, may_have_acted: bool) -> Outcome:
        """Go on with a pending delivery whose lock is ours."""
        found = await work.resume(job.claim)
        if isinstance(found, Pending) and may_have_acted:
            handler = self._handler(job)
            if handler is None or handler.recover is None:
                problem = Problem(code=ErrorCode.AMBIGUOUS_RESULT, reason="pending")
                return Refused(problem=problem, check=Check.CAPABILITY)
            done = await work.call(handler.recover, job.command)
            if done is not None:
                lane = await work.lane(job.claim) if self._in_order else None
                return await self._done(work, job, lane, done)
        lane = await self._judge(work, job, found if isinstance(found, Stored) else None)
        return await self._run(work, job, lane)

    async def _judge(self, work: Work, job: _Job, found: Found) -> Lane | None:
        """Admit a delivery, and return its lane where order is checked; raises what settles it otherwise."""
        if isinstance(found, Pending):
            raise InvariantBroken("a store whose effects are inside left something pending")
        lane = await work.lane(job.claim) if self._in_order and found is None else None
        standing = Standing(stored=found, lane=lane)
        verdict = admit(job.command.envelope, job.claim.identity, job.terms, standing, self._clock.now())
        if not isinstance(verdict, Admit):
            raise _SettledError(self._settled(verdict))
        if self.policy is not None and (problem := await _asked(self.policy, job)):
            raise _SettledError(Refused(problem=problem, check=Check.POLICY))
        return lane

    async def _run(self, work: Work, job: _Job, lane: Lane | None) -> Outcome:
        handler = self._handler(job)
        assert handler is not None
        return await self._done(work, job, lane, await work.call(handler.function, job.command))

    async def _done(self, work: Work, job: _Job, lane: Lane | None, done: Any) -> Outcome:
        if not isinstance(done, Done):
            raise TypeError("a handler returns Done")
        if lane is not None:
            await work.take_turn(job.claim, lane, job.command.envelope.sequence)
        return await self._complete(work, job.claim, build_receipt(job.command, done, self._clock.now()))

    async def _complete(self, work: Work, claim: Claim, receipt: Receipt) -> Executed:
        rendered = self._signed(render_receipt(receipt))
        await work.complete(claim, rendered, self._clock.now())
        return Executed(receipt=rendered, is_repeat=False)

    def _signed(self, rendered: bytes) -> bytes:
        if self.signer is None:
            return rendered
        try:
            return sign_receipt(rendered, self.signer)
        except ConfigError as error:
            _log.exception("receipt.unsigned")
            raise TransientError("no key to sign receipts with is valid now") from error

    def _settled(self, verdict: Repeat | Refusal) -> Outcome:
        if isinstance(verdict, Refusal):
            return Refused(problem=verdict.problem, check=verdict.check)
        receipt = verdict.receipt if verdict.is_same_delivery else self._signed(verdict.receipt)
        return Executed(receipt=receipt, is_repeat=True)

    def _handler(self, job: _Job) -> Handler | None:
        return self._handlers.get(job.command.envelope.command_type) or self._handlers.get(ANY_TYPE)

    async def status(self, claim: Claim, query: StatusQuery) -> StatusAnswer | Refused:
        """Say what became of a delivery: done, being done, or not done.

        A delivery that was executed with another body was not this one: a conflict, as for the delivery itself. What
        another delivery of the same operation did is not said: this one was not executed here. A store that forgets
        does not say that nothing was done.

        Raises as the store's `open` does.
        """
        await self._store.open()
        said, receipt = Said.NOT_DONE, None
        try:
            found = await self._store.look(claim)
        except UnderWayError:
            said = Said.IN_PROGRESS
        except Exception as error:
            if self._store.is_unavailable(error):
                return _store_failed(claim, error)
            raise
        else:
            is_its_own = found is not None and found.identity.delivery_id == query.delivery_id
            if is_its_own and isinstance(found, Pending):
                said = Said.IN_PROGRESS
            elif is_its_own and isinstance(found, Stored):
                known = judge_known(found, claim.identity)
                if isinstance(known, Refusal):
                    return Refused(problem=known.problem, check=known.check)
                said, receipt = Said.DONE, parse_receipt(known.receipt)
            elif self._store.memory.profile is not Profile.DURABLE_IDEMPOTENT:
                return Refused(problem=Problem(code=ErrorCode.PERMANENT_UNSUPPORTED, reason="status_query"))
        return StatusAnswer(
            query_id=str(query.query_id), delivery_id=str(query.delivery_id), said=said, receipt=receipt
        )

    async def _answered(self, claim: Claim, run: Callable[[], Awaitable[Outcome]]) -> Outcome:
        # What `open` raises is not the handler's: the caller answers for a store that never came up.
        await self._store.open()
        try:
            return await run()
        except _SettledError as settled:
            return settled.outcome
        except (Refuse, UnsealError, TransientError) as refusal:
            return _refused(refusal)
        except InvariantBroken:
            raise
        except Exception as error:  # what a handler raises is its own; the sender learns that nothing was done
            if self._store.is_unavailable(error):
                return _store_failed(claim, error)
            return _handler_failed(claim, error)


async def _asked(policy: PolicyHook, job: _Job) -> Problem | None:
    """Ask the hook; one that fails blocks for now, since it may have been about to say no."""
    try:
        if inspect.iscoroutinefunction(policy):
            found = await policy(job.command)
        else:
            found = await asyncio.to_thread(policy, job.command)
        if found is not None and not isinstance(found, Block):
            raise TypeError("a policy returns a Block or None")
    except Exception as error:  # it is the destination's own code
        _log_failure("policy.failed", job.claim, error)
        return Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="policy_unavailable")
    return blocked(found) if found is not None else None


def _refused(error: Refuse | UnsealError | TransientError) -> Refused:
    match error:
        case Refuse():
            problem = Problem(code=error.error_code, reason=error.reason, detail=error.detail)
            return Refused(problem=problem, retry_after=error.retry_after)
        case UnsealError():
            return Refused(problem=Problem(code=ErrorCode.VALIDATION, reason="unseal"))
        case TransientError():
            problem = Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="handler_unavailable")
            return Refused(problem=problem, retry_after=error.retry_after)
        case _:
            assert_never(error)


def _store_failed(claim: Claim, error: Exception) -> Refused:
    _log.warning(
        "store.unavailable", extra={"delivery_id": str(claim.identity.delivery_id), "error": type(error).__name__}
    )
    problem = Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="store_unavailable")
    return Refused(problem=problem, retry_after=_STORE_RETRY)


def _handler_failed(claim: Claim, error: Exception) -> Refused:
    _log_failure("handler.failed", claim, error)
    return Refused(problem=Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="handler_failed", status=500))


def _log_failure(event: str, claim: Claim, error: Exception) -> None:
    """Say where the destination's own code failed, not what the data were."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    _log.error(
        event,
        extra={
            "delivery_id": str(claim.identity.delivery_id),
            "command_type": claim.command_type,
            "error": type(error).__name__,
            "place": f"{place.filename}:{place.lineno}",
        },
    )
