"""`waybill read-model`: keep, drop and look at the read model."""

import signal
import threading
from contextlib import closing
from datetime import datetime
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.infra import log
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.readmodel import Places, PostgresStore, ReadModel, Settings, prepare, run
from waybill.readmodel.core.records import Topic
from waybill.readmodel.ports import Bounds
from waybill.readmodel.source import KafkaSource

__all__ = ["app", "records_behind"]

app = typer.Typer(no_args_is_help=True, help="What happened to each delivery, folded from the topics into PostgreSQL.")

_LOOK_S = 0.2

TenantOption = Annotated[str | None, typer.Option("--tenant", help="One tenant. Default: every tenant.")]


def _places() -> Places:
    known = Addresses.load()
    return Places(
        kafka=known.need("kafka"), registry_url=known.need("registry_url"), control_dsn=known.need("control_dsn")
    )


@app.command("run")
def run_command(
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", help="Only this tenant; repeatable. Default: every tenant.")
    ] = None,
    until_caught_up: bool = typer.Option(
        False, "--until-caught-up", help="Stop when everything that is there now is folded."
    ),
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", help="Serve /metrics, /healthz and /readyz there; 0 takes a free one."),
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Fold the topics until stopped. One process is enough; more of them share the tenants and take over."""
    log.configure(level=log_level)
    stop = _stop_on_signals()
    run(
        _places(),
        Settings(tenants=frozenset(tenant or ()), until_caught_up=until_caught_up),
        stop,
        metrics_port=metrics_port,
    )


@app.command("rebuild")
def rebuild_command(tenant: TenantOption = None, as_json: JsonFlag = False) -> None:
    """Empty the read model and fold everything again. A running `read-model run` notices and folds its tenants."""
    log.configure(level="warning")
    stop = _stop_on_signals()
    places = _places()
    prepare(places.control_dsn)
    with closing(PostgresStore(places.control_dsn)) as store:
        store.forget(tenant)
        console.print("emptied; folding again", highlight=False)
        records = run(places, Settings(tenants=frozenset([tenant] if tenant else ()), until_caught_up=True), stop)
        fingerprint = store.fingerprint(tenant)
    if stop.is_set():
        console.print("stopped before the end: run it again, or let `waybill read-model run` go on", highlight=False)
        raise typer.Exit(1)
    if as_json:
        print_json({"tenant": tenant, "records": records, "rows_md5": fingerprint})
    else:
        print_table("read model rebuilt", ("records folded", "hash of all rows"), [(records, fingerprint)])


@app.command("status")
def status_command(tenant: TenantOption = None, as_json: JsonFlag = False) -> None:
    """Show how far the read model is behind, per tenant and topic. Exit 1 when something is not folded yet."""
    places, now = _places(), SystemClock().now()
    with connect(places.control_dsn, application_name="waybill-cli") as connection:
        positions = ReadModel(connection).positions(tenant)
    lag: dict[str, dict[str, int]] = {}
    newest: dict[str, datetime] = {}
    for place, (owner, bounds) in _bounds(places, tenant).items():
        next_offset, at = positions.get(place, (bounds.first, None))
        behind, topic = lag.setdefault(owner, {}), place[0].rpartition(".")[2]
        behind[topic] = behind.get(topic, 0) + max(bounds.end - next_offset, 0)
        if at is not None:
            newest[owner] = max(newest.get(owner, at), at)
    total = sum(sum(behind.values()) for behind in lag.values())
    if as_json:
        rows = [{"tenant": name, "lag_records": lag[name], "newest": newest.get(name)} for name in lag]
        print_json({"at": now, "caught_up": total == 0, "lag_records": total, "tenants": rows})
    else:
        columns = ("tenant", *(topic.value for topic in Topic), "newest record")
        cells = [(name, *(lag[name].get(topic.value, "") for topic in Topic), newest.get(name)) for name in lag]
        print_table("records not folded yet", columns, cells)
    if total:
        raise typer.Exit(1)


def records_behind(tenant: str, wait_s: float) -> int:
    """Wait until everything that is in a tenant's topics now is folded; return how many records are not.

    Args:
        tenant: whose topics.
        wait_s: how long to wait; what comes meanwhile is not waited for.
    """
    clock = SystemClock()
    until = clock.monotonic() + wait_s
    places = _places()
    ends = {place: bounds.end for place, (_, bounds) in _bounds(places, tenant).items()}
    with closing(connect(places.control_dsn, application_name="waybill-cli", autocommit=True)) as connection:
        while True:
            positions = ReadModel(connection).positions(tenant)
            left = sum(max(end - positions.get(place, (0, None))[0], 0) for place, end in ends.items())
            if left == 0 or clock.monotonic() >= until:
                return left
            threading.Event().wait(_LOOK_S)


def _bounds(places: Places, tenant: str | None) -> dict[tuple[str, int], tuple[str, Bounds]]:
    """Return by partition its tenant and what it holds now."""
    with closing(KafkaSource(places.kafka)) as source:
        tenants = source.partitions([tenant] if tenant else ())
        bounds = source.bounds(list(tenants))
    return {place: (owner, bounds[place]) for place, owner in sorted(tenants.items())}


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
