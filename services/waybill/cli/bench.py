"""`waybill bench`: measure on the running local stack. Ratios decide; absolute figures are for a quiet machine."""

from typing import Annotated, Any

import typer

from waybill.bench.deliver import DeliverOptions, bench_deliver
from waybill.bench.emit import EmitOptions, bench_emit
from waybill.bench.fanout import FanoutOptions, bench_fanout
from waybill.bench.handover import HandoverOptions, bench_handover
from waybill.bench.isolation import IsolationOptions, bench_isolation
from waybill.bench.latency import LatencyOptions, bench_latency
from waybill.bench.listener import ListenerOptions, bench_listener
from waybill.bench.peers import PeersOptions, bench_peers
from waybill.bench.relay import RelayOptions, bench_relay
from waybill.bench.scale import ScaleOptions, bench_scale
from waybill.bench.submit import SubmitOptions, bench_submit
from waybill.bench.verifying import VerifyOptions, bench_verify
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.fabric import Profile
from waybill.infra import log

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Measure relay, emit, deliver, handover, latency, isolation, scale, fan-out, peers, verify, listener and submit.",
)


@app.callback()
def _group() -> None:
    """Measure relay, emit, deliver, handover, latency, isolation, scale, fan-out, peers, verify, listener and submit."""
    log.configure(level="warning")  # the worker under test would otherwise write into the report


Pairs = Annotated[int, typer.Option(min=1, help="Interleaved pairs; below 5 the run calls itself invalid.")]


def _say(line: str) -> None:
    console.print(line, style="dim")


def _show(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    print_table(f"bench {report['bench']}", ("figure", "value"), list(report.items()))
    if report["invalid"]:
        console.print("invalid: too few pairs, or they differ by more than a quarter; run it on a quieter machine")


@app.command()
def deliver(  # noqa: PLR0913, PLR0917 - one parameter per option
    commands: Annotated[int, typer.Option(min=100, help="Commands in each backlog.")] = 20_000,
    pairs: Pairs = 5,
    soak: Annotated[int, typer.Option(min=0, help="Deliver this many more and watch memory.")] = 0,
    listener_ms: Annotated[int, typer.Option(min=0, help="The listener answers after this time.")] = 0,
    aggregates: Annotated[int, typer.Option(min=1, help="Aggregates the commands are spread over.")] = 2_000,
    profile: Annotated[Profile, typer.Option(help="The destination's profile.")] = Profile.DURABLE_IDEMPOTENT,
    as_json: JsonFlag = False,
) -> None:
    """In Kafka → acknowledged with durable state: one worker process against a bare HTTP loop."""
    options = DeliverOptions(
        commands=commands,
        pairs=pairs,
        soak=soak,
        listener_ms=listener_ms,
        aggregates=aggregates,
        profile=profile,
    )
    _show(bench_deliver(options, _say), as_json=as_json)


@app.command()
def handover(
    commands: Annotated[
        int, typer.Option(min=100, help="Commands in each backlog, each of an aggregate of its own.")
    ] = 20_000,
    pairs: Pairs = 5,
    profile: Annotated[Profile, typer.Option(help="The destination's profile.")] = Profile.DURABLE_IDEMPOTENT,
    as_json: JsonFlag = False,
) -> None:
    """In Kafka → handed over in Kafka, row first: one worker process against a bare transactional producer."""
    options = HandoverOptions(commands=commands, pairs=pairs, profile=profile)
    _show(bench_handover(options, _say), as_json=as_json)


@app.command()
def relay(
    commands: Annotated[int, typer.Option(min=100, help="Rows in each round.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Row committed in PostgreSQL → record readable in Kafka, through the real connector."""
    _show(bench_relay(RelayOptions(commands=commands, rounds=rounds), _say), as_json=as_json)


@app.command()
def emit(
    commands: Annotated[int, typer.Option(min=10, help="Transactions in each arm of a pair.")] = 500,
    pairs: Pairs = 10,
    writers: Annotated[int, typer.Option(min=1, help="Concurrent writers on one aggregate.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """What a command adds to the producer's own transaction, and how fast one aggregate takes commits."""
    _show(bench_emit(EmitOptions(commands=commands, pairs=pairs, writers=writers), _say), as_json=as_json)


@app.command()
def latency(
    rate: Annotated[int, typer.Option(min=1, help="Commands per second.")] = 200,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long, after a warm-up.")] = 30.0,
    as_json: JsonFlag = False,
) -> None:
    """Commit → first byte at the listener, through the whole road."""
    _show(bench_latency(LatencyOptions(rate_per_s=rate, seconds=seconds), _say), as_json=as_json)


@app.command()
def isolation(
    samples: Annotated[int, typer.Option(min=100, help="Healthy deliveries measured in each arm.")] = 20_000,
    pairs: Pairs = 5,
    listener_ms: Annotated[int, typer.Option(min=0, help="The listener answers after this time.")] = 50,
    aggregates: Annotated[int, typer.Option(min=100, help="Aggregates the commands are spread over.")] = 2_000,
    as_json: JsonFlag = False,
) -> None:
    """What the healthy wait longer beside a hot key, dead aggregates and a destination that hangs."""
    options = IsolationOptions(samples=samples, pairs=pairs, listener_ms=listener_ms, aggregates=aggregates)
    _show(bench_isolation(options, _say), as_json=as_json)


@app.command()
def scale(
    commands: Annotated[int, typer.Option(min=100, help="Commands in each arm of a pair.")] = 40_000,
    pairs: Pairs = 5,
    aggregates: Annotated[int, typer.Option(min=1_000, help="The many aggregates; the few are 1,000.")] = 1_000_000,
    rows: Annotated[int, typer.Option(min=1, help="Rows that are not due yet.")] = 100_000,
    as_json: JsonFlag = False,
) -> None:
    """What many aggregates and many open rows cost, and how long a killed worker's partitions wait."""
    options = ScaleOptions(commands=commands, pairs=pairs, aggregates=aggregates, rows=rows)
    _show(bench_scale(options, _say), as_json=as_json)


@app.command()
def fanout(
    destinations: Annotated[int, typer.Option(min=1, help="Destinations of one process.")] = 500,
    commands: Annotated[int, typer.Option(min=1, help="Commands; each names one destination in a hundred.")] = 2_000,
    as_json: JsonFlag = False,
) -> None:
    """What one process pays for many destinations, each named by few commands."""
    _show(bench_fanout(FanoutOptions(destinations=destinations, commands=commands), _say), as_json=as_json)


@app.command()
def peers(
    commands: Annotated[int, typer.Option(min=100, help="Rows in each arm of a pair.")] = 5_000,
    pairs: Pairs = 5,
    outpost: Annotated[str, typer.Option(help="Where a running Outpost takes events; it is fed beside them.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """The same outbox and listener behind Debezium Server's HTTP sink (fetched once, 745 MiB) and behind Waybill."""
    _show(bench_peers(PeersOptions(commands=commands, pairs=pairs, outpost=outpost), _say), as_json=as_json)


@app.command()
def verify(
    requests: Annotated[int, typer.Option(min=10, help="Requests in each arm of a pair.")] = 5_000,
    pairs: Pairs = 10,
    body_bytes: Annotated[int, typer.Option(min=1, help="Size of a body.")] = 1_000,
    as_json: JsonFlag = False,
) -> None:
    """What a listener's check of a request costs beside its signature check alone; needs no stack."""
    options = VerifyOptions(requests=requests, pairs=pairs, body_bytes=body_bytes)
    _show(bench_verify(options, _say), as_json=as_json)


@app.command()
def listener(
    commands: Annotated[int, typer.Option(min=10, help="Requests in each round.")] = 5_000,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds.")] = 5,
    connections: Annotated[int, typer.Option(min=1, help="Connections that send.")] = 32,
    as_json: JsonFlag = False,
) -> None:
    """Commands a second that the listener SDK verifies, executes once and answers for, on PostgreSQL."""
    options = ListenerOptions(commands=commands, rounds=rounds, connections=connections)
    _show(bench_listener(options, _say), as_json=as_json)


@app.command()
def submit(
    commands: Annotated[int, typer.Option(min=10, help="Single commands in each arm of a pair.")] = 3_000,
    batches: Annotated[int, typer.Option(min=1, help="Batches in each arm of a pair.")] = 20,
    batch: Annotated[int, typer.Option(min=1, max=1_000, help="Commands of a batch.")] = 1_000,
    pairs: Pairs = 5,
    connections: Annotated[int, typer.Option(min=1, help="Connections that send single commands.")] = 32,
    as_json: JsonFlag = False,
) -> None:
    """Commands a second that the submission API takes, single and in batches, against emitting them directly."""
    options = SubmitOptions(commands=commands, batches=batches, batch=batch, pairs=pairs, connections=connections)
    _show(bench_submit(options, _say), as_json=as_json)
