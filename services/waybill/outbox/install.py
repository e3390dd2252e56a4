"""Putting the outbox into a producer's database: by us, or as text for the team's own migration tool."""

from dataclasses import dataclass
from typing import Final

import psycopg

from waybill.infra import migrate
from waybill.infra.migrate import Migration

__all__ = ["PACKAGE", "Roles", "install", "sql_text"]

PACKAGE: Final = "waybill.outbox.migrations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Who may do what: the application emits, the relay reads. Roles that do not exist are made without login."""

    app: str = "waybill_app"
    relay: str = "waybill_relay"

    def substitutions(self) -> dict[str, str]:
        """Return the names as the migrations ask for them."""
        return {"app_role": self.app, "relay_role": self.relay}


def install(connection: psycopg.Connection, *, schema: str = "waybill", roles: Roles | None = None) -> list[Migration]:
    """Make or upgrade the outbox; idempotent, one transaction.

    The connection's user owns it: a role that may create schemas, roles and publications in this database, and not
    the application's.
    """
    chosen = roles or Roles()
    return migrate.migrate(connection, schema=schema, package=PACKAGE, substitutions=chosen.substitutions())


def sql_text(*, schema: str = "waybill", roles: Roles | None = None) -> str:
    """Return exactly what `install` runs on an empty database, without BEGIN and COMMIT."""
    chosen = roles or Roles()
    return migrate.script(schema=schema, package=PACKAGE, substitutions=chosen.substitutions())
