"""The outboxes submissions go to: which one numbers an aggregate, and a pool of connections to each.

A pool is opened when the first submission needs it, and the table beside the outbox is made then: whoever applied a
new outbox need not restart anything. Nothing here waits long: a database that does not answer is an answer of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg_pool import AsyncConnectionPool

from waybill.contracts.fabric import OutboxConfig, TenantConfig
from waybill.infra.migrate import migrate
from waybill.infra.postgres import connect
from waybill.infra.secrets import read_secret
from waybill.kernel.errors import RefusedError
from waybill.outbox import CommandDraft, Rule
from waybill.submission.store import PACKAGE, Submissions, schema_beside

__all__ = ["POOL_MAX", "OutboxPlace", "Outboxes", "numbered_by", "open_pool", "prepare"]

#: While some wait for their commit to be durable, the others work; more than this only stand in each other's way.
POOL_MAX: Final = 16
#: How long a submission waits for a connection, and how many may wait.
WAIT_S: Final = 5.0
MAX_WAITING: Final = 500


def open_pool(dsn: str, *, max_size: int = POOL_MAX, application_name: str = "waybill-api") -> AsyncConnectionPool[Any]:
    """Return a pool in autocommit that is not open yet."""
    settings = {"autocommit": True, "application_name": application_name}
    return AsyncConnectionPool(
        dsn, kwargs=settings, min_size=1, max_size=max_size, max_waiting=MAX_WAITING, timeout=WAIT_S, open=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPlace:
    """One outbox with the submissions beside it."""

    config: OutboxConfig
    submissions: Submissions
    pool: AsyncConnectionPool[Any]


def numbered_by(tenant: TenantConfig, drafts: Sequence[CommandDraft]) -> OutboxConfig:
    """Return the one outbox that numbers the aggregates of all commands.

    Raises:
        RefusedError: none does, or they are numbered by several: two outboxes are two transactions.
    """
    found = {
        outbox.name: outbox
        for draft in drafts
        for outbox in tenant.outboxes
        if draft.aggregate_type in outbox.aggregate_types
    }
    foreign = [
        draft.aggregate_type
        for draft in drafts
        if not any(draft.aggregate_type in outbox.aggregate_types for outbox in tenant.outboxes)
    ]
    if foreign:
        raise RefusedError(
            f"no outbox numbers aggregate type {foreign[0]}: fabric.yaml maps each to one",
            rule=Rule.FOREIGN_AGGREGATE_TYPE,
        )
    if len(found) > 1:
        raise RefusedError(
            f"outboxes {', '.join(sorted(found))} number these aggregates: submit one batch for each",
            rule="several_outboxes",
        )
    return next(iter(found.values()))


class Outboxes:
    """Pools by outbox, for one event loop."""

    def __init__(
        self,
        opened: Callable[[str, AsyncConnectionPool[Any]], None] | None = None,
        *,
        application_name: str = "waybill-api",
    ) -> None:
        """Open nothing yet.

        Args:
            opened: is told the name, tenant/outbox, of each pool that is opened.
            application_name: what the databases see.
        """
        self._told, self._application_name = opened, application_name
        self._places: dict[tuple[str, str, OutboxConfig], OutboxPlace] = {}
        self._opening = asyncio.Lock()

    async def place(self, config: OutboxConfig) -> OutboxPlace:
        """Return an outbox ready to be written to.

        Raises:
            ConfigError: its connection string is not where fabric.yaml says, or cannot be read.
            UnavailableError: its database does not answer.
        """
        key = (config.tenant, config.name, config)
        if (found := self._places.get(key)) is not None:
            return found
        async with self._opening:
            if (found := self._places.get(key)) is None:
                found = self._places[key] = await self._open(config)
        return found

    def opened(self) -> list[OutboxPlace]:
        """Return the outboxes that were used."""
        return list(self._places.values())

    async def forget(self, now: datetime) -> None:
        """Drop submissions that are older than they are remembered, from the outboxes in use."""
        for place in self.opened():
            async with place.pool.connection() as connection:
                await place.submissions.forget(connection, now)

    async def close(self) -> None:
        """Close every pool."""
        for place in self._places.values():
            await place.pool.close()

    async def _open(self, config: OutboxConfig) -> OutboxPlace:
        dsn = read_secret(config.dsn, f"dsn of outbox {config.name}")
        await asyncio.to_thread(_prepare, dsn, config.schema, self._application_name)
        pool = open_pool(dsn, application_name=self._application_name)
        await pool.open()
        if self._told is not None:
            self._told(f"{config.tenant}/{config.name}", pool)
        return OutboxPlace(config=config, submissions=Submissions(config.schema), pool=pool)

    @asynccontextmanager
    async def connection(self, config: OutboxConfig) -> AsyncIterator[tuple[psycopg.AsyncConnection[Any], Submissions]]:
        """Lend a connection to an outbox, with the table beside it."""
        place = await self.place(config)
        async with place.pool.connection() as connection:
            yield connection, place.submissions


def prepare(connection: psycopg.Connection[Any], outbox_schema: str) -> None:
    """Make or upgrade what remembers submissions beside an outbox; idempotent, one transaction."""
    beside, outbox = schema_beside(outbox_schema), {"outbox": outbox_schema}
    migrate(connection, schema=beside, package=PACKAGE, substitutions=outbox)


def _prepare(dsn: str, outbox_schema: str, application_name: str) -> None:
    with connect(dsn, application_name=application_name) as connection:
        prepare(connection, outbox_schema)
