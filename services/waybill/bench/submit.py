"""Submit: commands a second that the submission API takes, one to a request and many to a request.

The server is the real one, a process of its own on PostgreSQL; what is answered is committed. Each arm has a baseline
in its pair: the same commands emitted by this process itself, over as many connections as the server has, one
transaction where the arm has one request. So the ratio says what HTTP, keys and the record of the submission cost.
Every answer must be `202`, and the outbox must have as many rows as were sent.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import psycopg
import uvloop
from pyreqwest.client import Client, ClientBuilder

from waybill.bench.core.pairs import Arm, PairedRun, abba
from waybill.bench.counter import Counter, open_counter
from waybill.bench.workload import DATA
from waybill.bench.world import AGGREGATE_TYPE, COMMAND_TYPE
from waybill.kernel.errors import UnavailableError
from waybill.outbox import AsyncOutbox, CommandDraft
from waybill.submission.outboxes import POOL_MAX

__all__ = ["SubmitOptions", "bench_submit"]

_TAKEN: Final = 202


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """How much is submitted in each arm of each pair: `commands` one by one, `batches` of `batch`."""

    commands: int = 3_000
    batches: int = 20
    batch: int = 1_000
    pairs: int = 5
    connections: int = 32
    #: Connections that send batches.
    batch_connections: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """One way to submit: where to, and how many commands each of the requests holds."""

    path: str
    sizes: Sequence[int]
    connections: int

    @property
    def commands(self) -> int:
        return sum(self.sizes)


def _aggregates(count: int) -> list[str]:
    return [uuid.uuid4().hex for _ in range(count)]


def _member(aggregate: str) -> bytes:
    head = json.dumps({"commandType": COMMAND_TYPE, "aggregate": f"{AGGREGATE_TYPE}/{aggregate}"})
    return head[:-1].encode() + b',"data":' + DATA + b"}"


def _body(form: _Form, size: int) -> bytes:
    members = [_member(each) for each in _aggregates(size)]
    return members[0] if form.path.endswith("commands") else b'{"commands":[' + b",".join(members) + b"]}"


async def _in_turn(work: Sequence[Any], workers: int, do: Callable[[Any, int], Awaitable[None]]) -> float:
    """Do all of it with so many workers at once; return the seconds it took."""
    waiting = iter(work)

    async def loop(number: int) -> None:
        for each in waiting:
            await do(each, number)

    started = time.perf_counter()
    await asyncio.gather(*(loop(number) for number in range(workers)))
    return time.perf_counter() - started


class _Arms:
    """Both ways of one form into the same outbox."""

    def __init__(self, counter: Counter, client: Client, emitters: Sequence[psycopg.AsyncConnection[Any]]) -> None:
        self._counter, self._client, self._emitters = counter, client, emitters
        self.sent = 0

    async def rate(self, arm: Arm, form: _Form) -> float:
        """Return commands a second."""
        self.sent += form.commands
        seconds = await (self._submit(form) if arm is Arm.SUBJECT else self._emit(form))
        return form.commands / seconds

    async def _submit(self, form: _Form) -> float:
        bodies = [_body(form, size) for size in form.sizes]
        url, shown = self._counter.url + form.path, f"Bearer {self._counter.key}"

        async def post(body: bytes, _worker: int) -> None:
            headers = {"authorization": shown, "content-type": "application/json", "idempotency-key": uuid.uuid4().hex}
            answer = await self._client.post(url).headers(headers).body_bytes(body).build().send()
            text = await answer.text()
            if answer.status != _TAKEN:
                raise UnavailableError(f"the submission API answered {answer.status}: {text[:300]}")

        return await _in_turn(bodies, form.connections, post)

    async def _emit(self, form: _Form) -> float:
        drafts = [
            [
                CommandDraft(aggregate_type=AGGREGATE_TYPE, aggregate_id=each, command_type=COMMAND_TYPE, data=DATA)
                for each in _aggregates(size)
            ]
            for size in form.sizes
        ]

        async def emit(each: Sequence[CommandDraft], worker: int) -> None:
            connection = self._emitters[worker]
            async with connection.transaction():
                await AsyncOutbox(connection, tenant=self._counter.tenant).emit_many(each)

        return await _in_turn(drafts, min(form.connections, len(self._emitters)), emit)


async def _run(
    counter: Counter, options: SubmitOptions, progress: Callable[[str], None]
) -> tuple[dict[str, PairedRun], int]:
    forms = {
        "single": _Form(path="/v1/commands", sizes=[1] * options.commands, connections=options.connections),
        "batched": _Form(
            path="/v1/commands:batch", sizes=[options.batch] * options.batches, connections=options.batch_connections
        ),
    }
    client = ClientBuilder().no_proxy().follow_redirects(False).timeout(timedelta(seconds=120)).build()
    emitters = [await psycopg.AsyncConnection.connect(counter.dsn, autocommit=True) for _ in range(POOL_MAX)]
    arms, runs = _Arms(counter, client, emitters), {}
    async with client:
        for name, form in forms.items():
            progress(f"{name}: warming up")
            small = _Form(path=form.path, sizes=form.sizes[: len(form.sizes) // 5 or 1], connections=form.connections)
            rates: dict[Arm, list[float]] = {arm: [] for arm in Arm}
            for arm in Arm:
                await arms.rate(arm, small)
            for number, arm in enumerate(abba(options.pairs)):
                progress(f"{name}: pair {number // 2 + 1} of {options.pairs}: {arm}")
                rates[arm].append(await arms.rate(arm, form))
            runs[name] = PairedRun(subject=rates[Arm.SUBJECT], baseline=rates[Arm.BASELINE])
    for emitter in emitters:
        await emitter.close()
    return runs, arms.sent


def bench_submit(options: SubmitOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack, of which it needs PostgreSQL alone, and return its report.

    Raises:
        UnavailableError: the server did not start, or answered something else than that it took a submission.
    """
    started = time.perf_counter()
    with open_counter(progress) as counter, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runs, sent = runner.run(_run(counter, options, progress))
        rows = counter.rows()
    single, batched = runs["single"], runs["batched"]
    return {
        "bench": "submit",
        "commands": sent,
        "bytes": sent * len(DATA),
        "seconds": round(time.perf_counter() - started, 2),
        "pairs": options.pairs,
        "durability": "PostgreSQL synchronous_commit=on",
        "batch": options.batch,
        "single_per_s": round(single.subject_median),
        "batched_per_s": round(batched.subject_median),
        "single_emitted_per_s": round(single.baseline_median),
        "batched_emitted_per_s": round(batched.baseline_median),
        "single_ratio_to_emit_alone": round(single.ratio, 3),
        "batched_ratio_to_emit_alone": round(batched.ratio, 3),
        "lost_or_doubled": rows - sent,
        "invalid": single.is_invalid or batched.is_invalid,
    }
