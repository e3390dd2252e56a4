"""Root of the command tree.

Sub-commands live in `waybill.cli.<noun>` and are imported only when named, so that `waybill emit` does not pay
for Kafka and a light install gets a clear word about the extra it lacks. Exit codes: 0 done, 1 a promise or
check failed, 2 wrong input, 3 something needed is not available.
"""

import importlib
import sys
from typing import Final

import typer
from typer import _click as click  # typer vendors the click it subclasses
from typer.core import TyperGroup

from waybill import __version__
from waybill.kernel.errors import ConfigError, FabricError, RefusedError, UnavailableError

__all__ = ["main"]

#: noun → (module, help line). A module offers `app`, a Typer; one that serves several nouns offers `apps` by noun.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "dev": ("waybill.cli.dev", "Start, look at and end the local stack."),
    "topics": ("waybill.cli.topics", "Topics as files: see the difference, then make it so."),
    "schemas": ("waybill.cli.schemas", "Avro schemas as files: lint, compatibility, registration."),
    "connect": ("waybill.cli.connect", "Connectors as files: lint, put, watch."),
    "relay": ("waybill.cli.relay", "The pipe from outbox to topic: prove it, repair it."),
    "migrate": ("waybill.cli.migrate", "Make or upgrade the schemas of the control database."),
    "apply": ("waybill.cli.fabric", "Make the fabric what fabric.yaml says."),
    "diff": ("waybill.cli.fabric", "Show where file, applied configuration and reality differ."),
    "catalogue": ("waybill.cli.catalogue", "Command types: what they order and what is in them."),
    "keys": ("waybill.cli.keys", "Make, rotate and list a tenant's keys."),
    "access": ("waybill.cli.access", "Who may come in through an API, and who gave out which key."),
    "api": ("waybill.cli.api", "The submission API: commands over HTTP into the outbox."),
    "ingress": ("waybill.cli.ingress", "Events of producers that only speak Kafka, copied into the outbox."),
    "events": ("waybill.cli.events", "What became of deliveries and destinations, told to destinations like commands."),
    "submissions": ("waybill.cli.submissions", "Submissions that wait for a person, and the rules of resubmissions."),
    "outbox": ("waybill.cli.outbox", "Put the outbox into a producer's database, check it, keep its days."),
    "emit": ("waybill.cli.emit", "Put one command into an outbox."),
    "worker": ("waybill.cli.worker", "Run the delivery worker."),
    "tasks": ("waybill.cli.tasks", "Open tasks after the control database was set back."),
    "listen": ("waybill.cli.listen", "Run a listener alone, or capture what comes in for one."),
    "policy": ("waybill.cli.policy", "Look a listener's policy file over."),
    "receipt": ("waybill.cli.receipt", "Verify a signed receipt, offline."),
    "send-test": ("waybill.cli.send_test", "Send one signed sample to a listener and say what its answer means."),
    "conformance": ("waybill.cli.conformance", "Play the fabric against a listener and say what it keeps."),
    "read-model": ("waybill.cli.read_model", "Keep, rebuild and look at the read model."),
    "deliveries": ("waybill.cli.deliveries", "What happened to each delivery, what is next, who owns it, by when."),
    "requests": ("waybill.cli.requests", "What requests, the parents of deliveries, have come to."),
    "results": ("waybill.cli.results", "What destinations said later of deliveries they accepted."),
    "cancel": ("waybill.cli.decisions", "Take deliveries back before they can have been sent."),
    "baseline": ("waybill.cli.baseline", "Tell a new or restored listener where each aggregate goes on."),
    "destinations": ("waybill.cli.destinations", "Pause, resume, drain and limit destinations, and see who did."),
    "exceptions": ("waybill.cli.exceptions", "What may stay undone, by a second person's word and for a time."),
    "audit": ("waybill.cli.audit", "Who did what to the fabric: list, anchor, export, verify."),
    "sim": ("waybill.cli.sim", "Run the delivery engine under simulated bad luck, seed by seed."),
    "bench": ("waybill.cli.bench", "Measure relay, emit, deliver and latency."),
    "chaos": ("waybill.cli.chaos", "Break everything under load and ask independent books what happened."),
    "demo": ("waybill.cli.demo", "See the whole road work, with faults on purpose and a verdict at the end."),
}


class LazyGroup(TyperGroup):
    """A group that imports a sub-command's module when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the nouns in the order of the road, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command; an absent extra is named."""
        if cmd_name not in COMMANDS:
            return None
        module_name, help_line = COMMANDS[cmd_name]
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.startswith("waybill"):
                raise
            raise UnavailableError(
                f"`waybill {cmd_name}` needs the Python package {error.name!r}: pip install 'waybill[all]'"
            ) from error
        app: typer.Typer = getattr(module, "apps", {}).get(cmd_name) or module.app
        command = typer.main.get_command(app)
        command.name = cmd_name
        if not command.help:
            command.help = help_line
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the nouns from the table, without importing anything."""
        with formatter.section("Commands"):  # from the table: nothing is imported
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


root = typer.Typer(
    cls=LazyGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


@root.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Waybill: commands that must not be lost, doubled or reordered."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; expected errors become one clear line on stderr and an exit code."""
    try:
        root()
    except (ConfigError, RefusedError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except UnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(3)
    except FabricError as error:
        print(f"error [{error.code}]: {error}", file=sys.stderr)
        sys.exit(1)
