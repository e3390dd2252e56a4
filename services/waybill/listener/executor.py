"""Executing a believed command once: claim, judge, call, complete, commit.

Whatever door brought the command, the steps are the same and lie in one transaction (GW-6). It is claimed before it is
judged: a copy that comes too late waits for the one under way, and reports what that one did. A handler that
refuses or fails leaves nothing behind, not even the record of the delivery: the sender's next attempt, or a redrive
after the listener was mended, is a first one.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias, assert_never, cast

import psycopg

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import GapResolution
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import Receipt, ReceiptStatus, parse_receipt, render_receipt
from waybill.contracts.status_query import Said, StatusAnswer, StatusQuery
from waybill.crypto.sealing import UnsealError
from waybill.kernel.clock import Clock
from waybill.kernel.errors import InvariantBroken, TransientError
from waybill.listener.core.claims import Claim
from waybill.listener.core.dedup import Repeat, Stored
from waybill.listener.core.message import Done, Received, Refuse, build_receipt
from waybill.listener.core.verification import (
    ANY_TYPE,
    Admit,
    Capability,
    Check,
    Refusal,
    Standing,
    Terms,
    admit,
    judge_known,
)
from waybill.listener.sequences import Sequences
from waybill.listener.store import PostgresStore
from waybill.listener.transaction import BlockingTransaction

__all__ = ["Executed", "Executor", "Handler", "HandlerFunction", "Outcome", "Refused"]

_log = logging.getLogger("waybill.listener")

#: Called with the command and the open transaction; with or without `async`.
HandlerFunction: TypeAlias = Callable[[Received, Any], Awaitable[Done] | Done]
#: Called with the open transaction and what was executed before.
_Run: TypeAlias = Callable[[psycopg.AsyncConnection, Stored | None], Awaitable[bytes]]
#: When a database that does not answer may be asked again.
_STORE_RETRY: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A handler and what it declares."""

    function: HandlerFunction
    capability: Capability


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


class Executor:
    """Runs handlers over a store."""

    def __init__(
        self, store: PostgresStore, handlers: Mapping[str, Handler], clock: Clock, *, in_order: bool = False
    ) -> None:
        """Take what it needs; `in_order` refuses what is not the next one of its aggregate."""
        self._store = store
        self._sequences = Sequences(store.schema) if in_order else None
        self._handlers = handlers
        self._clock = clock

    async def execute(self, claim: Claim, command: Received, terms: Terms) -> Outcome:
        """Execute a believed command, report what was done before, or refuse it.

        Raises as `PostgresStore.open` does; everything later is an outcome.
        """

        async def run(connection: psycopg.AsyncConnection, stored: Stored | None) -> bytes:
            lane = None
            if self._sequences is not None and stored is None:
                lane = await self._sequences.read(connection, claim)
            standing = Standing(stored=stored, lane=lane)
            verdict = admit(command.envelope, claim.identity, terms, standing, self._clock.now())
            if not isinstance(verdict, Admit):
                raise _SettledError(_settled(verdict))
            if self._sequences is not None and lane is not None:
                await self._sequences.take_turn(connection, claim, lane, command.envelope.sequence)
            handler = self._handlers.get(command.envelope.command_type) or self._handlers[ANY_TYPE]
            done = await _call(handler.function, command, connection)
            return render_receipt(build_receipt(command, done, self._clock.now()))

        return await self._once(claim, run)

    async def note(self, claim: Claim, gap: GapResolution) -> Outcome:
        """Record a gap resolution, and what it says where sequences are checked."""

        async def run(connection: psycopg.AsyncConnection, stored: Stored | None) -> bytes:
            if stored is not None:
                raise _SettledError(_settled(judge_known(stored, claim.identity)))
            if self._sequences is not None:
                await self._sequences.note(connection, claim, gap)
            return render_receipt(
                Receipt(
                    status=ReceiptStatus.DONE,
                    delivery_id=str(gap.resolution_id),
                    operation_id=claim.identity.operation_id,
                    source_version=str(gap.entries[-1].sequence),
                    count=len(gap.entries),
                    evidence=f"urn:waybill:gap-resolution:{gap.resolution_id}",
                    received_at=claim.received_at,
                    executed_at=self._clock.now(),
                )
            )

        return await self._once(claim, run)

    async def status(self, claim: Claim, query: StatusQuery) -> StatusAnswer | Refused:
        """Say what became of a delivery: done, being done, or not done.

        A delivery that was executed with another body was not this one: a conflict, as for the delivery itself. What
        another delivery of the same operation did is not said: this one was not executed here.

        Raises as `PostgresStore.open` does.
        """
        await self._store.open()
        said, receipt = Said.NOT_DONE, None
        try:
            stored = await self._store.look(claim)
        except psycopg.errors.LockNotAvailable:
            said = Said.IN_PROGRESS
        except psycopg.OperationalError as error:
            return _store_failed(claim, error)
        else:
            if stored is not None and stored.identity.delivery_id == query.delivery_id:
                known = judge_known(stored, claim.identity)
                if isinstance(known, Refusal):
                    return Refused(problem=known.problem, check=known.check)
                said, receipt = Said.DONE, parse_receipt(known.receipt)
        return StatusAnswer(
            query_id=str(query.query_id), delivery_id=str(query.delivery_id), said=said, receipt=receipt
        )

    async def _once(self, claim: Claim, run: _Run) -> Outcome:
        await (
            self._store.open()
        )  # what it raises is not the handler's: the caller answers for a store that never came up
        try:
            async with self._store.transaction() as connection:
                stored = await self._store.claim(connection, claim)
                receipt = await run(connection, stored)
                await self._store.complete(connection, claim, receipt, self._clock.now())
        except _SettledError as settled:
            return settled.outcome
        except (Refuse, UnsealError, TransientError) as refusal:
            return _refused(refusal)
        except psycopg.OperationalError as error:
            return _store_failed(claim, error)
        except InvariantBroken:
            raise
        except Exception as error:  # what a handler raises is its own; the sender learns that nothing was done
            return _handler_failed(claim, error)
        return Executed(receipt=receipt, is_repeat=False)


async def _call(function: HandlerFunction, command: Received, connection: psycopg.AsyncConnection) -> Done:
    if inspect.iscoroutinefunction(function):
        done = await cast("Awaitable[Done]", function(command, connection))
    else:
        transaction = BlockingTransaction(connection, asyncio.get_running_loop())
        try:
            done = cast("Done", await asyncio.to_thread(function, command, transaction))
        finally:
            transaction.end()
    if not isinstance(done, Done):
        raise TypeError("a handler returns Done")
    return done


def _settled(verdict: Repeat | Refusal) -> Outcome:
    if isinstance(verdict, Repeat):
        return Executed(receipt=verdict.receipt, is_repeat=True)
    return Refused(problem=verdict.problem, check=verdict.check)


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


def _store_failed(claim: Claim, error: psycopg.OperationalError) -> Refused:
    _log.warning(
        "store.unavailable", extra={"delivery_id": str(claim.identity.delivery_id), "error": type(error).__name__}
    )
    problem = Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="store_unavailable")
    return Refused(problem=problem, retry_after=_STORE_RETRY)


def _handler_failed(claim: Claim, error: Exception) -> Refused:
    """Nothing was done, so the sender may try again; says where it happened, not what the data were."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    _log.error(
        "handler.failed",
        extra={
            "delivery_id": str(claim.identity.delivery_id),
            "command_type": claim.command_type,
            "error": type(error).__name__,
            "place": f"{place.filename}:{place.lineno}",
        },
    )
    return Refused(problem=Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="handler_failed", status=500))
