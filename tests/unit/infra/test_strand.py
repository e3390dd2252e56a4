"""Work on a strand blocks its own thread and nothing else."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from waybill.infra.strand import ThreadStrand
from waybill.kernel.errors import InvariantBroken
from waybill.testing.waiting import eventually


def test_work_runs_on_a_thread_of_its_own_in_the_order_it_was_left() -> None:
    strand: ThreadStrand[int | None] = ThreadStrand("worker")
    done: list[tuple[int, str]] = []

    async def work() -> None:
        while (number := await strand.take()) is not None:
            done.append((await strand.call(abs, number), threading.current_thread().name))

    strand.start(work())
    for number in (-1, 2, None):
        strand.give(number)

    eventually(lambda: not strand.is_alive)
    assert done == [(1, "worker"), (2, "worker")]


def test_waits_end_by_their_cause_or_their_time() -> None:
    strand: ThreadStrand[None] = ThreadStrand("worker")
    flag, future, found = threading.Event(), Future[str](), []

    async def work() -> None:
        found.append(await strand.wait(flag, 0.001))
        flag.set()
        found.append(await strand.wait(flag, 60))
        with pytest.raises(TimeoutError):
            await strand.result(future, 0.001)
        future.set_result("done")
        found.append(await strand.result(future, 60))

    strand.run(work())

    assert found == [False, True, "done"]


def test_work_that_waits_for_something_else_is_refused() -> None:
    with pytest.raises(InvariantBroken):
        ThreadStrand[None]("worker").run(asyncio.sleep(0))
