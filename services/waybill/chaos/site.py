"""The ground a campaign stands on: a stack of its own, a producer database, keys, one apply, a folder for its books.

A stack is named `chaos` (or `chaos-3` with three brokers) unless WAYBILL_STACK says otherwise: whatever it runs is
killed, so it is never the one people work with by accident. What is made here is kept; each campaign has aggregates
of its own.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waybill import devstack
from waybill.chaos.town import TENANT, fabric_yaml
from waybill.crypto.keyring import ensure_signing
from waybill.devstack import Stack, Wanted
from waybill.devstack.ground import environ_of, is_up, make_database, run_to_end
from waybill.devstack.stack import write_private
from waybill.infra.addresses import environment
from waybill.infra.clock import SystemClock
from waybill.infra.postgres import connect
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Tenant
from waybill.outbox.install import install

__all__ = ["CONNECTOR", "DATABASE", "Site", "Tell", "apply", "make_site", "open_stack"]

Tell = Callable[[str], None]

DATABASE: Final = "chaos_app"
CONNECTOR: Final = "waybill-chaos-app"
APPLY_TIMEOUT_S: Final = 300.0
#: Books of so many earlier campaigns are kept.
KEPT: Final = 4

#: What each producer's own transaction notes, beside the commands it emits: the truth about what was promised.
NOTES: Final = """
CREATE TABLE IF NOT EXISTS promise (
    run text NOT NULL,
    delivery_id uuid NOT NULL,
    destination text NOT NULL,
    aggregate text NOT NULL,
    sequence integer NOT NULL
);
CREATE INDEX IF NOT EXISTS promise_by_run ON promise (run);
GRANT SELECT, INSERT ON promise TO waybill_app;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where things are."""

    stack: Stack
    #: Books and logs of this campaign.
    folder: Path
    #: Part of every aggregate of this campaign.
    run: str

    @property
    def producer_dsn(self) -> str:
        """The producer database, as its application."""
        return self.stack.dsn(DATABASE, "waybill_app")

    def environ(self) -> dict[str, str]:
        """Return the variables that point the fabric's programs at the stack."""
        return environ_of(self.stack)


def open_stack(brokers: int | None, tell: Tell) -> tuple[Stack, bool]:
    """Return a running stack and whether it was started for this.

    Raises:
        ConfigError: the stack is not ours to kill.
        UnavailableError: it did not start; says what to do.
    """
    name = environment().get("WAYBILL_STACK") or ("chaos" if brokers in {None, 1} else f"chaos-{brokers}")
    was_up = is_up(name)
    tell(f"using the stack {name!r}, which is up" if was_up else f"starting the stack {name!r}")
    stack = devstack.up(Wanted(name=name, brokers=brokers), tell)
    if stack.backend != "process":
        raise ConfigError(f"stack {name!r} runs by {stack.backend}: a campaign kills processes of this machine only")
    return stack, not was_up


def make_site(stack: Stack, run: str, tell: Tell) -> Site:
    """Make database, outbox, keys and a folder for the books; drop the oldest books."""
    books = stack.folder / "chaos"
    books.mkdir(exist_ok=True)
    for old in sorted(books.iterdir(), key=lambda each: each.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old)
    site = Site(stack=stack, folder=books / run, run=run)
    site.folder.mkdir()
    tell("making a producer database with an outbox, and keys")
    make_database(stack, DATABASE)
    with connect(stack.dsn(DATABASE), application_name="waybill-chaos") as connection:
        install(connection)
        connection.execute(NOTES.encode())
    ensure_signing(stack.keys_dir, Tenant(TENANT), SystemClock().now())
    return site


def apply(site: Site, urls: Mapping[str, str], tell: Tell) -> None:
    """Write `fabric.yaml` for where the proxy listens now, and apply it."""
    dsn_file = site.folder / "app.dsn"
    write_private(dsn_file, site.stack.dsn(DATABASE))
    path = site.folder / "fabric.yaml"
    path.write_text(fabric_yaml(urls, dsn_file))
    tell(f"waybill apply -f {path}")
    run_to_end("waybill apply", ["apply", "--yes", "-f", str(path)], site.environ(), APPLY_TIMEOUT_S)
