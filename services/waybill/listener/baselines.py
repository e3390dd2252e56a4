"""Taking a baseline: asked for by this listener, kept part by part, counted as a whole or not at all.

It is neither executed nor recorded as a delivery: its repeats are known by its parts, and no handler sees it.
"""

import logging
import secrets
from datetime import datetime, timedelta
from typing import Final

from waybill.contracts.baseline import APPLIED, STAGED, BaselinePart, evidence_of
from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import Receipt, ReceiptStatus, render_receipt
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError
from waybill.listener.core.baseline import Step, judge_part
from waybill.listener.core.verification import Binding, Check
from waybill.listener.executor import Executed, Outcome, Refused
from waybill.listener.stores.port import DedupStore

__all__ = ["BaselineDesk"]

_log = logging.getLogger("waybill.listener")

#: When a database that does not answer may be asked again.
_STORE_RETRY: Final = timedelta(seconds=2)


class BaselineDesk:
    """Asks for baselines and takes them."""

    def __init__(self, binding: Binding, store: DedupStore, clock: Clock, *, in_order: bool) -> None:
        self._binding, self._store, self._clock = binding, store, clock
        self._in_order = in_order

    async def ask(self) -> str:
        """Make a nonce; a statement that was made for an earlier one is refused from now on.

        Raises:
            ConfigError: this listener does not check sequences, so that it needs no baseline.
            UnavailableError: the store cannot be opened.
        """
        nonce = secrets.token_urlsafe(24)
        await self._store.open()
        async with self._store.transaction() as work:
            baselines = await work.baselines() if self._in_order else None
            if baselines is None:
                raise ConfigError(
                    "this listener takes deliveries in any order and waits for no sequence, so it needs no baseline: "
                    "one is for Limits(in_order=True) over PostgreSQL or SQLite"
                )
            await baselines.ask(self._binding, nonce, self._clock.now())
        return nonce

    async def take(self, part: BaselinePart, received_at: datetime) -> Outcome:
        """Keep a believed part, and let the statement count when it is whole.

        Raises as the store's `open` does; everything later is an outcome.
        """
        await self._store.open()
        try:
            return await self._taken(part, received_at)
        except Exception as error:
            if not self._store.is_unavailable(error):
                raise
            _log.warning("store.unavailable", extra={"part_id": str(part.part_id), "error": type(error).__name__})
            problem = Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="store_unavailable")
            return Refused(problem=problem, retry_after=_STORE_RETRY)

    async def _taken(self, part: BaselinePart, received_at: datetime) -> Outcome:
        async with self._store.transaction() as work:
            baselines = await work.baselines() if self._in_order else None
            if baselines is None:
                detail = "this listener does not check sequences: nothing here waits for a baseline"
                problem = Problem(code=ErrorCode.PERMANENT_UNSUPPORTED, reason="baseline", detail=detail)
                return Refused(problem=problem, check=Check.CAPABILITY)
            now = self._clock.now()
            step = judge_part(part, await baselines.asked(self._binding), now)
            if isinstance(step, Problem):
                return Refused(problem=step, check=Check.SEQUENCE)
            if step in {Step.STAGE, Step.APPLY}:
                await baselines.stage(part, now)
            if step is Step.APPLY:
                moved = await baselines.apply(self._binding, now)
                facts = {"baseline_id": str(part.baseline_id), "digest": part.digest, "moved": moved}
                _log.warning("baseline.applied", extra=facts)
        receipt = Receipt(
            status=ReceiptStatus.DONE,
            delivery_id=str(part.part_id),
            operation_id=str(part.part_id),
            source_version=APPLIED if step in {Step.APPLY, Step.APPLIED} else STAGED,
            count=len(part.lanes),
            digest=f"sha256:{part.data_sha256}",
            evidence=evidence_of(part.baseline_id),
            received_at=received_at,
            executed_at=now,
        )
        return Executed(receipt=render_receipt(receipt), is_repeat=step in {Step.STAGED, Step.APPLIED})
