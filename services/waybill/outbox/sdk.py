"""Emitting from Python, inside the transaction that changes the producer's own data.

```python
with connection.transaction():
    with Outbox(connection, tenant="acme").collect() as box:
        connection.execute("UPDATE subject SET state = 'erasing' WHERE id = %s", (7,))
        box.emit(CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={"id": 7}))
```

Before anything is sent, data are held against the catalogue: the outbox is asked what it knows of the command types, and
data that break their schema are a `RefusedError` like any other.

`collect` sends nothing until its block ends; then all commands go in one statement, which takes the counter row of
every aggregate in one order and holds them to the commit. So the locks are short, and two transactions that touch the
same aggregates in another order cannot wait for each other. `emit` and `emit_many` send at once: fine for one call per
transaction, a possible deadlock with several.

Invariants: the transaction is the caller's (nothing here begins, commits or rolls back); a refusal is a `RefusedError`
with its rule and leaves the transaction to be rolled back, as every PostgreSQL error does; the database's own errors
pass unchanged. Among those are two that mean "run the whole transaction again": see `is_retryable`.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from waybill.crypto.sealing import SealBinding, seal
from waybill.infra.postgres import identifier
from waybill.kernel.errors import ConfigError, RefusedError
from waybill.kernel.ids import Aggregate, Tenant
from waybill.outbox.adapters import open_async_door, open_door
from waybill.outbox.core.draft import CommandDraft, Emitted, emitted, encode_commands, encode_data
from waybill.outbox.core.rules import SQLSTATES
from waybill.outbox.core.types import asked, known_types, with_versions

__all__ = ["AsyncOutbox", "Collected", "Outbox", "is_retryable", "refusals"]

#: What one transaction may send: PostgreSQL holds the array as one value of at most 256 MiB.
MAX_TRANSACTION_BYTES: Final = 128 * 1024 * 1024
#: serialization_failure, deadlock_detected
RETRIED: Final = frozenset({"40001", "40P01"})


class Collected:
    """The commands of one transaction until they are sent, and what the database made of them."""

    def __init__(self) -> None:
        self.drafts: list[CommandDraft] = []
        #: In the order of `emit`; empty until the block has ended.
        self.emitted: list[Emitted] = []

    def emit(self, draft: CommandDraft) -> int:
        """Add one command and return its place in `emitted`."""
        self.drafts.append(draft)
        return len(self.drafts) - 1


class _Emission:
    """What is the same for every kind of connection: the statement, its parameters, its rows, its refusals."""

    def __init__(self, tenant: str, schema: str, placeholders: tuple[str, str]) -> None:
        self.tenant = Tenant(tenant)
        first, second = placeholders
        self.statement = (
            "SELECT place, command_id, aggregate, sequences, issued_at, expires_at "  # noqa: S608 - a checked identifier
            f"FROM {identifier(schema)}.emit_many({first}, CAST({second} AS jsonb)) ORDER BY place"
        )
        self.ask_types = (
            "SELECT command_type, version, format, definition, rendering "  # noqa: S608 - a checked identifier
            f"FROM {identifier(schema)}.type_versions({first}, CAST({second} AS jsonb))"
        )

    def commands(self, given: Sequence[CommandDraft], types: Iterable[Sequence[Any]]) -> str:
        """Hold data against the catalogue, encode, and seal what is to be sealed.

        Args:
            given: what is emitted.
            types: the rows of `ask_types`.
        """
        drafts = with_versions(self.tenant, given, known_types(types))
        payloads = [self._payload(draft) for draft in drafts]
        size = sum(map(len, payloads))
        if size > MAX_TRANSACTION_BYTES:
            raise ConfigError(f"{size} bytes of payload in one transaction: emit in several, or emit references")
        return encode_commands(drafts, payloads)

    def _payload(self, draft: CommandDraft) -> bytes:
        data = encode_data(draft)
        if draft.seal_with is None:
            return data
        binding = SealBinding(
            tenant=self.tenant,
            aggregate=Aggregate(f"{draft.aggregate_type}/{draft.aggregate_id}"),
            command_type=draft.command_type,
        )
        return seal(draft.seal_with, data, binding)


def _sqlstate(error: BaseException | None) -> str | None:
    """Find the SQLSTATE under what SQLAlchemy or Django wrapped around the driver's error."""
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None


def _driver_text(error: BaseException) -> str:
    """Return message and hint of a refusal; both are written by the emit functions and hold no payload."""
    below: BaseException | None = error
    while below is not None:
        diagnosis = getattr(below, "diag", None)
        if diagnosis is not None and diagnosis.message_primary:
            hint = diagnosis.message_hint
            return f"{diagnosis.message_primary}. {hint}" if hint else str(diagnosis.message_primary)
        below = getattr(below, "orig", None) or below.__cause__
    return "the outbox refused the command"


@contextmanager
def refusals() -> Iterator[None]:
    """Turn SQLSTATEs of class WB into RefusedError; everything else passes."""
    try:
        yield
    except Exception as error:  # whatever library: the SQLSTATE decides, and what is not ours is raised again
        rule = SQLSTATES.get(_sqlstate(error) or "")
        if rule is None:
            raise
        raise RefusedError(_driver_text(error), rule=rule.value) from error


def is_retryable(error: BaseException) -> bool:
    """Whether the same transaction, run again from its beginning, may succeed.

    True for a serialization failure (REPEATABLE READ and SERIALIZABLE transactions meet it on a busy aggregate) and
    for a deadlock. Roll back, wait a random moment, run everything again: the numbers were given back.
    """
    return _sqlstate(error) in RETRIED


class Outbox:
    """The outbox behind a synchronous connection: psycopg, a SQLAlchemy Session or Connection, Django."""

    def __init__(self, connection: Any, *, tenant: str, schema: str = "waybill") -> None:
        self._door = open_door(connection)
        self._emission = _Emission(tenant, schema, self._door.placeholders)

    def emit(self, draft: CommandDraft) -> Emitted:
        """Insert one command now.

        Raises:
            RefusedError: `rule` says which rule; the transaction can only be rolled back.
            ConfigError: the connection is in autocommit mode, or the data have no JSON form.
        """
        return self.emit_many([draft])[0]

    def emit_many(self, drafts: Iterable[CommandDraft]) -> list[Emitted]:
        """Insert commands now, all or none, and return what became of them in the order given."""
        listed = list(drafts)
        self._door.check_transaction()
        if not listed:
            return []
        emission, run = self._emission, self._door.run
        commands = emission.commands(listed, run(emission.ask_types, emission.tenant, asked(listed)))
        with refusals():
            return [emitted(row) for row in run(emission.statement, emission.tenant, commands)]

    @contextmanager
    def collect(self) -> Iterator[Collected]:
        """Gather commands and insert them when the block ends well; nothing is sent when it raises.

        The caller commits after the block: end it inside the transaction.
        """
        self._door.check_transaction()
        box = Collected()
        yield box
        box.emitted.extend(self.emit_many(box.drafts))


class AsyncOutbox:
    """The outbox behind an asynchronous connection: psycopg, a SQLAlchemy AsyncSession or AsyncConnection."""

    def __init__(self, connection: Any, *, tenant: str, schema: str = "waybill") -> None:
        self._door = open_async_door(connection)
        self._emission = _Emission(tenant, schema, self._door.placeholders)

    async def emit(self, draft: CommandDraft) -> Emitted:
        """Insert one command now; as `Outbox.emit`."""
        return (await self.emit_many([draft]))[0]

    async def emit_many(self, drafts: Iterable[CommandDraft]) -> list[Emitted]:
        """Insert commands now, all or none, and return what became of them in the order given."""
        listed = list(drafts)
        await self._door.check_transaction()
        if not listed:
            return []
        emission, run = self._emission, self._door.run
        commands = emission.commands(listed, await run(emission.ask_types, emission.tenant, asked(listed)))
        with refusals():
            return [emitted(row) for row in await run(emission.statement, emission.tenant, commands)]

    @asynccontextmanager
    async def collect(self) -> AsyncIterator[Collected]:
        """Gather commands and insert them when the block ends well; as `Outbox.collect`."""
        await self._door.check_transaction()
        box = Collected()
        yield box
        box.emitted.extend(await self.emit_many(box.drafts))
