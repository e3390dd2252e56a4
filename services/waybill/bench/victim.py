"""A worker of a benchmark in a process of its own, so that it can be killed: `python -m waybill.bench.victim …`.

It works for a world another process made, and ends like any worker: drained by SIGTERM, or at once.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from waybill import devstack
from waybill.bench.deliver import worker_of
from waybill.bench.world import World
from waybill.infra import log
from waybill.infra.runner import calm_collector, run_until_stopped
from waybill.kernel.ids import Tenant

__all__ = ["main", "victim"]


@contextmanager
def victim(world: World, url: str, slot: str, failpoint: str = "") -> Iterator[psutil.Popen]:
    """Run a worker of the world as a process that dies at a failpoint; whatever is left of it at the end is killed."""
    command = [sys.executable, "-m", "waybill.bench.victim", "--database", world.database, "--tenant"]
    command += [world.tenants[0], "--url", url, "--slot", slot, "--stack", world.stack.name, "--failpoint", failpoint]
    process = psutil.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.is_running():
            process.kill()
        process.wait()


def main() -> None:
    """Work until the process is ended."""
    parser = argparse.ArgumentParser(description="Work for the world of a benchmark.")
    for name in ("stack", "database", "tenant", "url", "slot"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--failpoint", default="")
    options = parser.parse_args()
    world = World(
        stack=devstack.load(options.stack), database=options.database, tenants=(Tenant(options.tenant),), durability=""
    )
    log.configure(level="warning")
    worker = worker_of(world, options.url, options.slot, {"WAYBILL_FAILPOINT": options.failpoint})
    calm_collector()
    run_until_stopped(worker.run)


if __name__ == "__main__":
    main()
