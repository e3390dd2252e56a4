"""The ground the demonstration stands on: a stack, two producer databases, one for the listeners, keys, one apply.

Everything here is idempotent and kept, so that a second run on the same stack finds it and only the aggregates are
new. The databases are the demonstration's own; it touches nobody else's tenants.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waybill import devstack
from waybill.crypto.keyring import ensure_signing
from waybill.crypto.keys import jwks_path
from waybill.demo.town import TENANTS, fabric_yaml
from waybill.devstack import Stack, Wanted
from waybill.devstack.ground import environ_of, is_up, make_database, run_to_end
from waybill.devstack.stack import write_private
from waybill.infra.addresses import environment
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.ids import Tenant
from waybill.outbox.install import install

__all__ = ["Site", "apply", "open_stack", "prepare", "stack_name"]

Tell = Callable[[str], None]

OWN_STACK: Final = "demo"
LISTENERS: Final = "demo_listeners"
APPLY_TIMEOUT_S: Final = 300.0

#: What each producer's own transaction writes, beside the command.
BUSINESS: Final = """
CREATE TABLE IF NOT EXISTS business_change (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text NOT NULL,
    thing text NOT NULL,
    what text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS business_change_by_run ON business_change (run);
GRANT SELECT, INSERT ON business_change TO waybill_app;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where things are."""

    stack: Stack
    folder: Path

    def producer_dsn(self, tenant: str, role: str = "waybill_app") -> str:
        """Return the DSN of a tenant's producer database."""
        return self.stack.dsn(f"demo_{tenant}", role)

    @property
    def listeners_dsn(self) -> str:
        """The DSN of the database the three listeners keep their books in."""
        return self.stack.dsn(LISTENERS)

    def jwks(self, tenant: str) -> Path:
        """Return the path of a tenant's public keys."""
        return jwks_path(self.stack.keys_dir, Tenant(tenant))

    def environ(self) -> dict[str, str]:
        """Return the variables that point the fabric's programs at the stack."""
        return environ_of(self.stack)


def stack_name() -> str:
    """Return which stack to use: the one WAYBILL_STACK names, else `default` when it is up, else one of our own."""
    if chosen := environment().get("WAYBILL_STACK"):
        return chosen
    return "default" if is_up("default") else OWN_STACK


def open_stack(tell: Tell) -> tuple[Stack, bool]:
    """Return a running stack and whether it was started for this.

    Raises:
        UnavailableError: it did not start; says what to do.
    """
    name = stack_name()
    if is_up(name):
        tell(f"using the stack {name!r}, which is up")
        return devstack.load(name), False
    tell(f"starting the stack {name!r}")
    return devstack.up(Wanted(name=name), tell), True


def prepare(stack: Stack, tell: Tell) -> Site:
    """Make databases, outboxes and keys; what is there stays."""
    site = Site(stack=stack, folder=stack.folder / "demo")
    site.folder.mkdir(parents=True, exist_ok=True)
    tell("making two producer databases with an outbox each, one database for the listeners, and keys")
    for database in (*(f"demo_{tenant}" for tenant in TENANTS), LISTENERS):
        make_database(stack, database)
    for tenant in TENANTS:
        with connect(site.producer_dsn(tenant, "postgres"), application_name="waybill-demo") as connection:
            install(connection)
            connection.execute(BUSINESS.encode())
        ensure_signing(stack.keys_dir, Tenant(tenant), SystemClock().now())
    return site


def apply(site: Site, urls: Mapping[tuple[str, str], str], tell: Tell) -> Path:
    """Write `fabric.yaml` for where the listeners are now, and apply it; return the file."""
    files = {tenant: site.folder / f"{tenant}.dsn" for tenant in TENANTS}
    for tenant, path in files.items():
        write_private(path, site.producer_dsn(tenant, "postgres"))
    path = site.folder / "fabric.yaml"
    path.write_text(fabric_yaml(urls, files))
    tell(f"waybill apply -f {path}")
    run_to_end("waybill apply", ["apply", "--yes", "-f", str(path)], site.environ(), APPLY_TIMEOUT_S)
    return path
