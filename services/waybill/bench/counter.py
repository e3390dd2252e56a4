"""A submission API of a benchmark's own: an outbox, a control database and the real server as a process.

Only PostgreSQL of the local stack is used, and everything is deleted afterwards. The server is started as anybody
starts it, with `waybill api run`.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

from waybill import devstack
from waybill.access import KeyRing, Scope
from waybill.bench.world import World
from waybill.devstack.ground import WAYBILL, drop_database, environ_of, make_database, run_to_end
from waybill.fabric import Applied, FabricStore, plan
from waybill.infra.addresses import environment
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import Tenant
from waybill.outbox import OutboxSettings
from waybill.outbox.install import install
from waybill.outbox.provision import sync

__all__ = ["Counter", "open_counter"]

_MIGRATE_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Where submissions are taken."""

    url: str
    tenant: Tenant
    #: Of the outbox, as its owner.
    dsn: str
    pid: int
    key: str = field(repr=False)

    def rows(self) -> int:
        """Return how many commands are in the outbox."""
        with closing(connect(self.dsn)) as connection:
            row = connection.execute("SELECT count(*) FROM waybill.outbox").fetchone()
        return int(row[0]) if row is not None else 0


@contextmanager
def open_counter(progress: Callable[[str], None]) -> Iterator[Counter]:
    """Run a submission API until the block ends.

    Raises:
        UnavailableError: no local stack is up, or the server did not start.
    """
    stack, run, clock = devstack.load(), secrets.token_hex(4), SystemClock()
    tenant = Tenant(f"bench-{run}")
    world = World(stack=stack, database=f"bench_{run}", tenants=(tenant,), durability="")
    config = world.config("http://127.0.0.1:1/")
    environ = {**environ_of(stack), "WAYBILL_CONTROL_DSN": world.admin_dsn, "BENCH": world.admin_dsn}
    progress("making a database")
    with ExitStack() as undo:
        make_database(stack, world.database)
        undo.callback(drop_database, stack.dsn("postgres"), world.database)
        run_to_end("waybill migrate", ["migrate"], environ, _MIGRATE_S)
        with closing(connect(world.admin_dsn, autocommit=True)) as owner:
            install(owner)
            sync(owner, "waybill", OutboxSettings.of(config.tenants[0], config.tenants[0].outboxes[0], 1))
            store = FabricStore(owner)
            store.record(config, plan(store.current(), config).changes, Applied(at=clock.now(), by="bench"))
            ring = KeyRing(owner, clock)
            made = ring.create(tenant, "bench", frozenset({Scope.COMMANDS_SUBMIT}), lifetime=None, by="bench")
        url, pid = undo.enter_context(_serving(environ))
        yield Counter(url=url, tenant=tenant, dsn=world.admin_dsn, pid=pid, key=made.text)


@contextmanager
def _serving(environ: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    command = [*WAYBILL, "api", "run", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(
        command, env={**environment(), **environ}, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise UnavailableError("the submission API did not start: its messages are above")
            yield json.loads(line)["url"], process.pid
        finally:
            process.terminate()
