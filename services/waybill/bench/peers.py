"""Peers: the same outbox and the same listener behind Debezium Server's HTTP sink, and behind Waybill.

Debezium Server is fetched once, checked against a hash, and run with its router of outbox rows on a slot of its own.
Both arms start from rows committed in PostgreSQL and end when the listener has had every one of them. The figures are
of a peer as it comes: it sends one request after the other, keeps no outcome, and stops for good at a listener that
says no. The address of a running Outpost can be given, to be fed beside them.
"""

import asyncio
import json
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from waybill.bench.core.pairs import MAX_SPREAD, MIN_PAIRS, Arm, abba, spread
from waybill.bench.deliver import running_worker
from waybill.bench.relay import insert_rows
from waybill.bench.world import InstantListener, World, instant_listener, make_world
from waybill.devstack.artifacts import Locked, fetch_from_repository, install, provide_sets
from waybill.infra.postgres import connect
from waybill.kernel.errors import UnavailableError

__all__ = ["PeersOptions", "bench_peers"]

SERVER: Final = Locked(
    sha256="f95567c7107e5ae0a778dce850c36e86487b2c49e131dfc9bbb72c7ac2feb944",
    size=781_529_954,
    group="io.debezium",
    artifact="debezium-server-dist",
    version="3.6.1.Final",
    packaging="tar.gz",
    classifier="",
    place="debezium-server",
)
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersOptions:
    """How much is sent through each."""

    #: Rows in each arm of a pair.
    commands: int = 5_000
    pairs: int = 5
    #: Where a running Outpost takes events (`POST`), with its tenant and topic set up; empty leaves it out.
    outpost: str = ""


def _properties(world: World, url: str, work: Path) -> dict[str, object]:
    """Return Debezium Server's settings: the sink's defaults, the connector's as near to Waybill's as they go."""
    stack = world.stack
    source = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": work / "offsets",
        "offset.flush.interval.ms": 1_000,
        "plugin.name": "pgoutput",
        "topic.prefix": "peer",
        "database.hostname": stack.postgres_host,
        "database.port": stack.postgres_port,
        "database.dbname": world.database,
        "database.user": "waybill_relay",
        "database.password": stack.passwords["waybill_relay"],
        "slot.name": f"{world.database}_peer",
        "slot.drop.on.stop": "true",
        "publication.name": "waybill_outbox",
        "publication.autocreate.mode": "disabled",
        "table.include.list": "waybill.outbox",
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        "binary.handling.mode": "base64",
        "poll.interval.ms": 50,
        "max.batch.size": 8_192,
        "max.queue.size": 32_768,
    }
    router = {
        "type": "io.debezium.transforms.outbox.EventRouter",
        "table.field.event.id": "command_id",
        "table.field.event.key": "aggregate",
        "table.field.event.payload": "payload",
        "route.by.field": "route",
    }
    return {
        **{f"debezium.source.{name}": value for name, value in source.items()},
        **{f"debezium.transforms.outbox.{name}": value for name, value in router.items()},
        "debezium.transforms": "outbox",
        "debezium.sink.type": "http",
        "debezium.sink.http.url": f"{url}peer",
        "debezium.format.key": "json",
        "debezium.format.value": "json",
        "debezium.format.key.schemas.enable": "false",
        "debezium.format.value.schemas.enable": "false",
        "quarkus.http.port": 0,
        "quarkus.log.level": "WARN",
        "quarkus.log.console.json": "false",
    }


@contextmanager
def _debezium_server(world: World, url: str, progress: Callable[[str], None]) -> Iterator[None]:
    """Run it until the block ends; its slot is dropped with the world's database."""
    cache = world.stack.folder.parent.parent / "cache"
    installed = install(cache, progress)
    home = provide_sets(cache, [SERVER], fetch_from_repository, progress)["debezium-server"] / "debezium-server"
    with tempfile.TemporaryDirectory(prefix="waybill-peer-") as folder:
        work = Path(folder)
        (work / "config").mkdir()
        lines = (f"{name}={value}\n" for name, value in _properties(world, url, work).items())
        (work / "config" / "application.properties").write_text("".join(lines))
        (work / "config" / "application.properties").chmod(0o600)
        runner = next(home.glob("debezium-server-*runner.jar"))
        path = f"{runner}:{home / 'config' / 'lib'}:{home / 'lib'}/*"
        opened = "--add-opens=java.base/java.lang=ALL-UNNAMED"  # its runtime wants it since Java 24
        command = [str(installed.java), "-Xmx512m", opened, "-cp", path, "io.debezium.server.Main"]
        with (work / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=work, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for_slot(world, process, work / "log")
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for_slot(world: World, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    with closing(connect(world.admin_dsn, autocommit=True)) as owner:
        while True:
            found = owner.execute(
                "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active", (f"{world.database}_peer",)
            ).fetchone()
            if found:
                return
            if process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").strip().splitlines()[-3:]
                raise UnavailableError(f"Debezium Server did not come up: {' / '.join(last)}")
            time.sleep(_LOOK_S)  # noqa: TID251 - a benchmark's own thread


def _until_received(listener: InstantListener, commands: int, what: str) -> float:
    """Wait until the listener had so many; return how long that took."""
    started, received = time.monotonic(), 0
    while received < commands:
        received += listener.ledger()["received"]
        if time.monotonic() - started > _PATIENCE_S:
            raise UnavailableError(f"{what} delivered {received} of {commands} within {_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_S)  # noqa: TID251 - a benchmark's own thread
    return time.monotonic() - started


async def _through_waybill(world: World, listener: InstantListener, commands: int, number: int) -> float:
    async with running_worker(world, listener.url):
        await asyncio.to_thread(insert_rows, world, commands, number)
        return commands / await asyncio.to_thread(_until_received, listener, commands, "Waybill")


def _through_outpost(url: str, commands: int) -> float:
    """Publish to a running Outpost; what it takes in is what is timed: where it delivers is its own set-up."""
    body = json.dumps({"topic": "bench", "data": {"pad": "x" * 400}}).encode()
    started = time.monotonic()
    for _ in range(commands):
        request = urllib.request.Request(url, body, {"content-type": "application/json"})  # noqa: S310 - the caller's
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the caller's own address
            answer.read()
    return commands / (time.monotonic() - started)


def bench_peers(options: PeersOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark on the running local stack and return its report."""
    rates: dict[Arm, list[float]] = {Arm.SUBJECT: [], Arm.BASELINE: []}
    for number, arm in enumerate(abba(options.pairs)):
        name = "Waybill" if arm is Arm.SUBJECT else "Debezium Server"
        progress(f"pair {number // 2 + 1} of {options.pairs}: {name}")
        rates[arm].append(_arm(arm, options.commands, progress))
    peers = {"debezium_server": {"version": SERVER.version, "deliveries_per_s": _median(rates[Arm.BASELINE])}}
    if options.outpost:
        peers["outpost"] = {
            "version": "as given",
            "deliveries_per_s": _through_outpost(options.outpost, options.commands),
        }
    ratios = [a / b for a, b in zip(rates[Arm.SUBJECT], rates[Arm.BASELINE], strict=True)]
    return {
        "bench": "peers",
        "commands": options.commands * options.pairs,
        "pairs": options.pairs,
        "deliveries_per_s": _median(rates[Arm.SUBJECT]),
        "peers": peers,
        "ratio_to_debezium_server": round(statistics.median(ratios), 2),
        "invalid": options.pairs < MIN_PAIRS or any(spread(found) > MAX_SPREAD for found in rates.values()),
    }


def _arm(arm: Arm, commands: int, progress: Callable[[str], None]) -> float:
    """Send rows through one of the two in a world of its own, after a tenth to warm up; return rows per second."""
    with ExitStack() as stack:
        world = stack.enter_context(make_world(lambda _: None, with_relay=arm is Arm.SUBJECT))
        listener = stack.enter_context(instant_listener())
        if arm is Arm.SUBJECT:
            runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
            runner.run(_through_waybill(world, listener, commands // 10, 0))
            return runner.run(_through_waybill(world, listener, commands, 1))
        stack.enter_context(_debezium_server(world, listener.url, progress))
        insert_rows(world, commands // 10, 0)
        _until_received(listener, commands // 10, "Debezium Server")
        insert_rows(world, commands, 1)
        return commands / _until_received(listener, commands, "Debezium Server")


def _median(values: list[float]) -> int:
    return round(statistics.median(values))
