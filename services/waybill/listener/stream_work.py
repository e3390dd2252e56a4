"""One partition of a topic on its way through the listener: a lane per aggregate, what waits for its turn, results."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import Envelope, GapResolution
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import Receipt, parse_receipt
from waybill.crypto.signing import Signer
from waybill.infra.kafka import Record
from waybill.infra.publisher import Publisher
from waybill.kernel.errors import ConfigError, ContractError, UnavailableError
from waybill.listener.app import Listener
from waybill.listener.asgi import Headers
from waybill.listener.core.holding import Bounds, Hold, hold, release
from waybill.listener.core.progress import Progress
from waybill.listener.core.verification import Door
from waybill.listener.executor import Executed, Refused
from waybill.listener.receiver import Heard
from waybill.listener.results import result_of, sign_result

__all__ = ["PartitionWork", "Shared"]

_log = logging.getLogger("waybill.listener")

#: Before what cannot be done or written now is tried again.
_AGAIN_S: Final = 1.0
#: Refusals that say nothing of the delivery: the store does not serve, and nothing was done.
_NOT_NOW: Final = frozenset({"store_unavailable"})


class Shared:
    """What all partitions share: the listener, and the way its results go."""

    def __init__(
        self, listener: Listener, signer: Signer, publisher: Publisher, bounds: Bounds, concurrency: int
    ) -> None:
        self.listener, self.bounds = listener, bounds
        self._signer, self._publisher = signer, publisher
        self._slots = asyncio.Semaphore(concurrency)
        #: Records that wait for a store or for keys, and results that wait for the brokers.
        self.waits_to_execute = self.waits_to_publish = 0
        #: Something ended that never should: only another process makes it good.
        self.is_broken = False

    async def hear(self, record: Record, goes_on: Callable[[], bool]) -> Heard | None:
        """Have a record verified and executed, however long the store does not serve; None: it was not begun."""
        headers = Headers((name.encode(), value or b"") for name, value in record.headers)
        while True:
            async with self._slots:
                if not goes_on():
                    return None
                heard = await self._try(headers, record.value or b"")
            if heard is not None:
                return heard
            self.waits_to_execute += 1
            try:
                await asyncio.sleep(_AGAIN_S)
            finally:
                self.waits_to_execute -= 1

    async def _try(self, headers: Headers, body: bytes) -> Heard | None:
        try:
            heard = await self.listener.hear(Door.KAFKA, headers, body)
        except (ConfigError, UnavailableError) as error:
            _log.error("listener.unavailable", extra={"error": error.code, "detail": str(error)})
            return None
        is_not_now = isinstance(heard.outcome, Refused) and heard.outcome.problem.reason in _NOT_NOW
        return None if is_not_now else heard

    async def tell(self, record: Record, message: Envelope, said: Receipt | Problem) -> None:
        """Publish a signed result beside its delivery; returns when it is safe."""
        now = self.listener.clock.now()
        result = result_of(message, said, now)
        while True:
            try:
                signed = sign_result(result, self._signer, self.listener.clock.now())
                await self._publisher.publish(signed.topic, signed.key, signed.body, signed.headers, record.partition)
            except (UnavailableError, ConfigError) as error:
                _log.warning("result.not_written", extra={"delivery_id": str(result.delivery_id), "detail": str(error)})
                self.waits_to_publish += 1
                try:
                    await asyncio.sleep(_AGAIN_S)
                finally:
                    self.waits_to_publish -= 1
            else:
                return


@dataclass(slots=True)
class _Waiting:
    """A delivery whose turn has not come, and what is said when it does not come in time."""

    record: Record
    message: Envelope
    problem: Problem


@dataclass(slots=True)
class _Lane:
    """The records of one aggregate."""

    queue: deque[Record] = field(default_factory=deque)
    hold: Hold = field(default_factory=Hold)
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    is_busy: bool = False


class PartitionWork:
    """One assigned partition; lives on the loop."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._progress = Progress()
        self._lanes: dict[bytes, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        #: The offset that was committed last from here.
        self.committed: int | None = None
        #: Read and not settled.
        self.records = self.bytes = 0

    @property
    def held(self) -> int:
        """How many wait for an earlier one of their aggregate."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def uncommitted(self) -> int | None:
        """Return the offset to commit; None when nothing moved."""
        base = self._progress.base
        return None if base == self.committed else base

    def take(self, record: Record) -> None:
        """Take a record that was read."""
        if not self._progress.read(record.offset):
            return
        self.records += 1
        self.bytes += len(record.value or b"")
        key = record.key or b""
        lane = self._lanes.setdefault(key, _Lane())
        lane.queue.append(record)
        self._start(key, lane)

    def tell_overdue(self) -> None:
        """Tell the worker of what waited too long: it decides."""
        now = self._shared.listener.clock.now()
        for key, lane in list(self._lanes.items()):
            self._tell_gaps(key, lane, lane.hold.overdue(self._shared.bounds, now))

    def tell_oldest(self, count: int) -> None:
        """Tell the worker of what has waited longest, so many of them."""
        waiting = [
            (since, number, key) for key, lane in self._lanes.items() for number, since in lane.hold.since.items()
        ]
        for _, number, key in sorted(waiting)[:count]:
            self._tell_gaps(key, self._lanes[key], (number,))

    def _tell_gaps(self, key: bytes, lane: _Lane, sequences: Sequence[int]) -> None:
        lane.hold = lane.hold.without(*sequences)
        for sequence in sequences:
            self._spawn(self._give_up(lane.waiting.pop(sequence)))
        self._leave(key, lane)

    async def finish(self, budget_s: float) -> None:
        """Begin nothing more, wait for what is under way, and leave the rest to whoever reads on from `base`."""
        self._is_closing = True
        if self._tasks and budget_s:
            await asyncio.wait(self._tasks, timeout=budget_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, key: bytes, lane: _Lane) -> None:
        if lane.queue and not lane.is_busy and not self._is_closing:
            lane.is_busy = True
            self._spawn(self._run(key, lane))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._shared.is_broken = True
            task.get_loop().call_exception_handler({"message": "a lane ended", "exception": error, "task": task})

    async def _run(self, key: bytes, lane: _Lane) -> None:
        try:
            while lane.queue and not self._is_closing:
                await self._one(lane, lane.queue.popleft())
        finally:
            lane.is_busy = False
            self._leave(key, lane)

    def _leave(self, key: bytes, lane: _Lane) -> None:
        if not (lane.queue or lane.waiting or lane.is_busy):
            self._lanes.pop(key, None)

    async def _one(self, lane: _Lane, record: Record) -> None:
        heard = await self._shared.hear(record, lambda: not self._is_closing)
        if heard is None:
            return
        message, outcome = heard.message, heard.outcome
        if isinstance(message, Envelope | GapResolution):
            if isinstance(outcome, Executed):
                await self._tell(record, message, _said(outcome.receipt))
                self._released(lane, message)
            elif isinstance(outcome, Refused):
                if outcome.problem.reason == "gap" and isinstance(message, Envelope):
                    self._hold(lane, _Waiting(record, message, outcome.problem))
                    return
                await self._tell(record, message, outcome.problem)
        else:
            self._unbelieved(record, heard)
        self._settle(record)

    async def _tell(self, record: Record, message: Envelope | GapResolution, said: Receipt | Problem) -> None:
        """Tell what came of a delivery; of a gap resolution nobody waits to hear, its hand-over closed it."""
        if isinstance(message, Envelope):
            await self._shared.tell(record, message, said)

    def _hold(self, lane: _Lane, waiting: _Waiting) -> None:
        sequence = waiting.message.sequence
        held = hold(lane.hold, sequence, self._shared.bounds, self._shared.listener.clock.now())
        if held is None:
            self._spawn(self._give_up(waiting))
        elif sequence in lane.waiting:  # a copy: the first is answered for both
            self._settle(waiting.record)
        else:
            lane.hold = held
            lane.waiting[sequence] = waiting

    def _released(self, lane: _Lane, message: Envelope | GapResolution) -> None:
        """Let the store judge again what waited for this one."""
        last = message.entries[-1].sequence if isinstance(message, GapResolution) else message.sequence
        freed = release(lane.hold, last)
        lane.hold = lane.hold.without(*freed)
        lane.queue.extendleft(lane.waiting.pop(sequence).record for sequence in reversed(freed))

    async def _give_up(self, waiting: _Waiting) -> None:
        await self._shared.tell(waiting.record, waiting.message, waiting.problem)
        self._settle(waiting.record)

    def _settle(self, record: Record) -> None:
        self._progress.settle(record.offset)
        self.records -= 1
        self.bytes -= len(record.value or b"")

    def _unbelieved(self, record: Record, heard: Heard) -> None:
        """Say where it lies and no more: who signs for nobody may not end a delivery by naming it."""
        check = heard.outcome.check if isinstance(heard.outcome, Refused) else None
        reason = heard.outcome.problem.reason if isinstance(heard.outcome, Refused) else "status_query"
        _log.warning(
            "record.refused",
            extra={"partition": record.partition, "offset": record.offset, "check": check, "reason": reason},
        )


def _said(receipt: bytes) -> Receipt | Problem:
    """Return what a stored receipt says; one that nobody reads is told as such, or its record would come for ever."""
    try:
        return parse_receipt(receipt)
    except ContractError as error:
        return Problem(code=ErrorCode.VALIDATION, reason="receipt", detail=str(error))
