"""`waybill relay`: prove the pipe with a canary, repair it after slot loss."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.connect_api import ConnectApi
from waybill.kernel.ids import Tenant
from waybill.relay import Recovery, recover, run_canary

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The pipe from outbox to topic: prove it, repair it.")

KafkaOption = Annotated[str | None, typer.Option("--kafka", help="Bootstrap servers. Default: WAYBILL_KAFKA.")]


@app.command("canary")
def canary_command(
    dsn: Annotated[str, typer.Option("--dsn", help="The outbox's database; the application's role may do it.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Whose pipe.")],
    schema: Annotated[str, typer.Option("--schema", help="Database schema of the outbox.")] = "waybill",
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for it.")] = 60.0,
    kafka: KafkaOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Send one row that nobody delivers and wait for it on the topic. Exit 1 with a diagnosis when it is lost."""
    result = run_canary(
        dsn, kafka or Addresses.load().need("kafka"), Tenant(tenant), SystemClock(), schema=schema, within_s=timeout_s
    )
    if as_json:
        print_json(
            {
                "tenant": result.tenant,
                "topic": result.topic,
                "command_id": result.command_id,
                "latency_ms": result.latency_ms,
                "came_back": result.latency_ms is not None,
                "diagnosis": list(result.diagnosis),
            }
        )
    elif result.latency_ms is not None:
        console.print(f"{result.topic}: the canary came back after {result.latency_ms:.0f} ms")
    else:
        console.print(f"{result.topic}: the canary did not come back within {timeout_s:.0f} s; look at:")
        for line in result.diagnosis:
            console.print(f"  - {line}")
    if result.latency_ms is None:
        raise typer.Exit(1)


@app.command("recover")
def recover_command(  # noqa: PLR0913, PLR0917 - one parameter per option
    dsn: Annotated[str, typer.Option("--dsn", help="The outbox's database, with a role that may replicate.")],
    connector: Annotated[str, typer.Option("--connector", help="Its connector, waybill-<outbox>.")],
    since: Annotated[
        datetime | None,
        typer.Option("--since", formats=["%Y-%m-%d"], help="Compare rows of this day and later only: less memory."),
    ] = None,
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Stop and write nothing; rows on their way count as missing."
    ),
    connect: Annotated[
        str | None, typer.Option("--connect", help="Connect's REST root. Default: WAYBILL_CONNECT_URL.")
    ] = None,
    kafka: KafkaOption = None,
    as_json: JsonFlag = False,
) -> None:
    """After slot loss: a new slot, and everything the topic lacks published again, in order. Safe to run twice."""
    addresses, clock = Addresses.load(), SystemClock()
    result = recover(
        Recovery(
            connector=connector,
            dsn=dsn,
            api=ConnectApi(connect or addresses.need("connect_url"), clock),
            kafka=kafka or addresses.need("kafka"),
            clock=clock,
            since=since.replace(tzinfo=UTC).date() if since else None,
            progress=console.print,
        ),
        dry_run=dry_run,
    )
    document = {
        "connector": result.connector,
        "dry_run": result.is_dry_run,
        "slot_starts_at": result.lsn,
        "topics": list(result.topics),
        "compared": result.compared,
        "not_judged": result.not_judged,
        "missing": result.missing,
        "republished": result.republished,
        "reordered": result.reordered,
    }
    if as_json:
        print_json(document)
    else:
        rows = [(key, ", ".join(value) if isinstance(value, list) else value) for key, value in document.items()]
        print_table("recovery", ("what", "value"), rows)
    if result.reordered:
        console.print("some rows came after later ones of their aggregate: readers see them as repaired holes")
