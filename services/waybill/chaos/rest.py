"""Healing after a campaign, and waiting for rest.

Rest is waited for as long as there is progress: nothing is given up on because a machine is slow, and nothing waits
for ever.
"""

from typing import Final

import psutil

from waybill import devstack
from waybill.chaos.closing import close_books
from waybill.chaos.running import Running
from waybill.chaos.site import CONNECTOR
from waybill.devstack import Stack, Wanted
from waybill.devstack.health import answers_http
from waybill.devstack.processes import find
from waybill.infra.connect_api import ConnectApi
from waybill.kernel.errors import FabricError

__all__ = ["await_rest", "heal", "mend_relay"]

#: A campaign that stands still for so long, in seconds, is at its end, whatever is left.
STILL_S: Final = 45.0
#: A Connect worker that does not come up for so long, in seconds, is started again, as a liveness probe would.
COMES_UP_WITHIN_S: Final = 40.0
#: As often as that; then the books say what was not relayed.
MOST_STARTS: Final = 3


def heal(running: Running) -> None:
    """Start what is not running; restart a connector task that gave up."""
    for worker in running.workers:
        worker.thaw()
    devstack.up(Wanted(name=running.site.stack.name))
    _await_connect(running)
    for worker in running.workers:
        worker.start()
    mend_relay(running)


def _await_connect(running: Running) -> None:
    """Wait for Connect; a worker whose brokers went away while it started answers, and never comes up."""
    for _ in range(MOST_STARTS):
        if _comes_up(running):
            return
        running.tell("connect does not come up and is started again")
        _start_again(running.site.stack)


def _comes_up(running: Running) -> bool:
    since = running.clock.monotonic()
    while not answers_http(f"{running.site.stack.connect_url}/health"):
        if running.clock.monotonic() - since > COMES_UP_WITHIN_S:
            return False
        running.look()
    return True


def _start_again(stack: Stack) -> None:
    process = find(stack.folder, ["connect"]).get("connect")
    if process is not None:
        process.kill()
        psutil.wait_procs([process], timeout=COMES_UP_WITHIN_S)
    devstack.up(Wanted(name=stack.name, services=("connect",)))


def mend_relay(running: Running) -> None:
    """Start tasks of the relay again that gave up: one whose database dies while it starts does."""
    api = ConnectApi(running.site.stack.connect_url, running.clock, patience_s=5.0)
    try:
        status = api.status(CONNECTOR)
        if status is not None and any(task.state == "FAILED" for task in status.tasks):
            running.tell(f"a task of {CONNECTOR} failed and is restarted: {status.tasks[0].trace}")
            running.ended.append(f"a task of {CONNECTOR} failed")
            api.restart(CONNECTOR)
    except FabricError as error:
        running.tell(f"Connect cannot be asked: {error}")


def await_rest(running: Running) -> bool:
    """Wait until every promise has ended and is in the books; False when nothing has moved for long."""
    moved_at, size, last = running.clock.monotonic(), -1, None
    while running.clock.monotonic() - moved_at < STILL_S:
        now = running.ledger.stat().st_size
        if now == size:  # a look at everything costs seconds: only when nothing arrives
            left = close_books(running.site, running.begins)
            if not left:
                running.tell("at rest: every promise has ended")
                return True
            if left != last:
                moved_at = running.clock.monotonic()
                running.tell(f"{left} promises have not ended")
                mend_relay(running)
            last = left
        else:
            moved_at = running.clock.monotonic()
        size = now
        running.look()
    running.tell(f"nothing moves and {last} promises have not ended")
    return False
