"""`waybill migrate`: every schema of the control database."""

from contextlib import closing
from dataclasses import dataclass
from typing import Final

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.infra.addresses import Addresses
from waybill.infra.migrate import migrate
from waybill.infra.postgres import connect

__all__ = ["SETS", "Migrated", "app", "migrate_all"]

app = typer.Typer(help="Make or upgrade the schemas of the control database.")

#: Database schema → the package with its migrations. `fabric` comes first: it makes the roles the others grant to.
#: `audit` comes last: it watches tables of the others.
SETS: Final = {
    "fabric": "waybill.fabric.migrations",
    "delivery": "waybill.delivery.migrations",
    "read": "waybill.readmodel.migrations",
    "access": "waybill.access.migrations",
    "submission": "waybill.submission.rules.migrations",
    "exceptions": "waybill.exceptions.migrations",
    "requests": "waybill.requests.migrations",
    "audit": "waybill.audit.migrations",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """One migration that was applied now."""

    schema: str
    number: int
    name: str


def migrate_all(control_dsn: str) -> list[Migrated]:
    """Apply what is missing in every schema, each in one transaction; empty when nothing was.

    Raises:
        ConfigError: the database has other or newer migrations than this version.
        UnavailableError: it does not answer.
    """
    done: list[Migrated] = []
    with closing(connect(control_dsn, application_name="waybill-migrate", autocommit=True)) as connection:
        for schema, package in SETS.items():
            applied = migrate(connection, schema=schema, package=package)
            done.extend(Migrated(schema=schema, number=each.number, name=each.name) for each in applied)
    return done


@app.command()
def migrate_command(as_json: JsonFlag = False) -> None:
    """Make or upgrade every schema of the control database; running it again changes nothing.

    The role of WAYBILL_CONTROL_DSN must be allowed to make schemas, roles and publications there.
    """
    done = migrate_all(Addresses.load().need("control_dsn"))
    if as_json:
        applied = [{"schema": each.schema, "number": each.number, "name": each.name} for each in done]
        print_json({"schemas": list(SETS), "applied": applied})
    elif not done:
        console.print("control database: in step")
    else:
        print_table("migrations applied", ("schema", "number", "name"), [(m.schema, m.number, m.name) for m in done])
