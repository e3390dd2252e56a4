"""`waybill topics`: the declared topics of a tenant, planned and made."""

from pathlib import Path
from typing import Annotated

import typer

from waybill.catalog import Action, TopicChange, apply_topics, load_topics, plan_topics, topics_of
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.kafka_admin import KafkaAdmin

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Topics as files: see the difference, then make it so.")

TenantOption = Annotated[str, typer.Option("--tenant", help="Whose topics.")]
PartitionsOption = Annotated[
    int | None,
    typer.Option("--partitions", help="Count for a tenant without topics; equal for all of them. Default 6."),
]
KafkaOption = Annotated[str | None, typer.Option("--kafka", help="Bootstrap servers. Default: WAYBILL_KAFKA.")]
FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of topic files. Default: those of this installation.", exists=True),
]


@app.command("plan")
def plan_command(
    tenant: TenantOption,
    partitions: PartitionsOption = None,
    kafka: KafkaOption = None,
    folder: FolderOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what apply would do. Exit 1 when a difference would be kept."""
    changes = plan_topics(_admin(kafka), tenant, partitions, declared=topics_of(load_topics(folder)))
    _show(tenant, changes, as_json=as_json, applied=False)


@app.command("apply")
def apply_command(
    tenant: TenantOption,
    partitions: PartitionsOption = None,
    kafka: KafkaOption = None,
    folder: FolderOption = None,
    dry_run: bool = typer.Option(False, "--dry-run", help="Change nothing: the same as plan."),
    as_json: JsonFlag = False,
) -> None:
    """Make the topics of a tenant. Never shrinks, never deletes, never raises live partitions. Exit 1 when kept."""
    carry_out = plan_topics if dry_run else apply_topics
    changes = carry_out(_admin(kafka), tenant, partitions, declared=topics_of(load_topics(folder)))
    _show(tenant, changes, as_json=as_json, applied=not dry_run)


def _admin(kafka: str | None) -> KafkaAdmin:
    return KafkaAdmin(kafka or Addresses.load().need("kafka"), SystemClock())


def _show(tenant: str, changes: list[TopicChange], *, as_json: bool, applied: bool) -> None:
    kept = [change for change in changes if change.action is Action.KEPT]
    if as_json:
        rows = [
            {
                "topic": change.topic,
                "action": change.action.value,
                "setting": change.setting,
                "actual": change.actual,
                "wanted": change.wanted,
                "reason": change.reason,
            }
            for change in changes
        ]
        print_json({"tenant": tenant, "applied": applied, "changes": rows, "in_step": not changes})
    elif not changes:
        console.print(f"topics of {tenant}: in step")
    else:
        print_table(
            f"topics of {tenant}: {'applied' if applied else 'plan'}",
            ("topic", "action", "setting", "actual", "wanted"),
            [(c.topic, c.action.value, c.setting, c.actual, c.wanted) for c in changes],
        )
        for reason in sorted({f"{change.setting} kept: {change.reason}" for change in kept}):
            console.print(reason)
    if kept:
        raise typer.Exit(1)
