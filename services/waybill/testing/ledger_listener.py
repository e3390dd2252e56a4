"""A listener that keeps books, for tests and the demonstration: what arrived, what took effect, in which order.

It is a real `Listener` on a real PostgreSQL. Its handler writes one row into `ledger.effect` in the delivery's own
transaction, with no constraint that would hide a second effect, so counting rows counts effects and `position` is
their order. Every request is noted in `ledger.arrival` outside that transaction, also the refused and the lost ones.

Start it in a process of its own, on a free port (0) or a fixed one:

    with LedgerProcess(Ledger(dsn=dsn, tenant="acme", destination="crm", jwks=path)) as ledger:
        ledger.url                                  # "http://127.0.0.1:41234"; ready when the block is entered
        effects(dsn, tenant="acme", destination="crm")

or from a shell: `python -m waybill.testing.ledger_listener --dsn … --tenant acme --destination crm --jwks jwks.json`,
which prints one JSON line `{"url": …, "pid": …}` when it takes requests. Leave the block, or send SIGTERM, to end it
gracefully; `kill()` ends it as a crash does. It can be started again on the same port with another behaviour.

Behaviour comes from the environment (`Behaviour.environment()` writes it):

- `WAYBILL_LEDGER_SLOW_MS`: every handler takes that long;
- `WAYBILL_LEDGER_FAIL_FIRST`: the first n requests of the process answer 503, nothing done;
- `WAYBILL_LEDGER_FAIL_UNTIL`: so does every request before that instant (RFC 3339);
- `WAYBILL_LEDGER_DROP_FIRST`: the first n good answers are cut off after their commit: the client gets a head, no body, an end.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from waybill.contracts.codes import ErrorCode
from waybill.infra.addresses import environment
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import parse_instant
from waybill.kernel.errors import UnavailableError
from waybill.listener import Done, Listener, PostgresStore, Received, Refuse
from waybill.listener.asgi import Message, Receive, Scope, Send
from waybill.listener.server import serve

__all__ = ["Arrival", "Behaviour", "Effect", "Ledger", "LedgerProcess", "arrivals", "effects"]

TABLES: Final = """
    CREATE SCHEMA IF NOT EXISTS ledger;
    CREATE TABLE IF NOT EXISTS ledger.effect (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        tenant text NOT NULL,
        destination text NOT NULL,
        delivery_id uuid NOT NULL,
        operation_id text NOT NULL,
        aggregate text NOT NULL,
        sequence integer NOT NULL,
        command_type text NOT NULL,
        executed_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE TABLE IF NOT EXISTS ledger.arrival (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        tenant text NOT NULL,
        destination text NOT NULL,
        webhook_id text NOT NULL,
        webhook_timestamp text NOT NULL,
        signature text NOT NULL,
        body_sha256 text NOT NULL,
        arrived_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
"""
NOTE_EFFECT: Final = """
    INSERT INTO ledger.effect (tenant, destination, delivery_id, operation_id, aggregate, sequence, command_type)
    VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING position
"""
NOTE_ARRIVAL: Final = """
    INSERT INTO ledger.arrival (tenant, destination, webhook_id, webhook_timestamp, signature, body_sha256)
    VALUES (%s, %s, %s, %s, %s, %s)
"""
# An advisory lock, because two ledgers may start on one database at once.
LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('waybill.ledger', 0))"
READ_EFFECTS: Final = """
    SELECT * FROM ledger.effect
     WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
       AND (%(destination)s::text IS NULL OR destination = %(destination)s)
     ORDER BY position
"""
READ_ARRIVALS: Final = """
    SELECT * FROM ledger.arrival
     WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
       AND (%(destination)s::text IS NULL OR destination = %(destination)s)
     ORDER BY position
"""
_START_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One thing that was done, as committed."""

    position: int
    tenant: str
    destination: str
    delivery_id: UUID
    operation_id: str
    aggregate: str
    sequence: int
    command_type: str
    executed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request that came in, whatever became of it."""

    position: int
    tenant: str
    destination: str
    webhook_id: str
    webhook_timestamp: str
    signature: str
    body_sha256: str
    arrived_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How a ledger misbehaves."""

    slow_ms: int = 0
    fail_first: int = 0
    fail_until: datetime | None = None
    drop_first: int = 0

    def environment(self) -> dict[str, str]:
        """Return the variables that make a process behave so."""
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value:
                text = value.isoformat() if isinstance(value, datetime) else str(value)
                found[f"WAYBILL_LEDGER_{field.name.upper()}"] = text
        return found

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> "Behaviour":
        """Read what `environment` wrote."""
        until = environ.get("WAYBILL_LEDGER_FAIL_UNTIL")
        return cls(
            slow_ms=int(environ.get("WAYBILL_LEDGER_SLOW_MS", "0")),
            fail_first=int(environ.get("WAYBILL_LEDGER_FAIL_FIRST", "0")),
            fail_until=parse_instant(until) if until else None,
            drop_first=int(environ.get("WAYBILL_LEDGER_DROP_FIRST", "0")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What one ledger listener needs."""

    dsn: str
    tenant: str
    destination: str
    #: Path or URL of the tenant's public keys.
    jwks: Path | str
    port: int = 0
    behaviour: Behaviour = Behaviour()


class LedgerApp:
    """The ASGI application: a listener behind a book of arrivals and a few faults."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._behaviour = ledger.behaviour
        self._clock = SystemClock()
        self._failed = self._dropped = 0
        self._book: psycopg.AsyncConnection | None = None
        self._writing = asyncio.Lock()
        store = PostgresStore(ledger.dsn, max_connections=20)
        self.listener = Listener(
            tenant=ledger.tenant, destination=ledger.destination, keys=str(ledger.jwks), store=store
        )
        self.listener.on("*")(self._execute)

    async def _execute(self, command: Received, transaction: psycopg.AsyncConnection) -> Done:
        until = self._behaviour.fail_until
        if self._failed < self._behaviour.fail_first or (until is not None and self._clock.now() < until):
            self._failed += 1
            raise Refuse(ErrorCode.SOURCE_UNAVAILABLE, "told_to_fail", retry_after=timedelta(seconds=1))
        if self._behaviour.slow_ms:
            await asyncio.sleep(self._behaviour.slow_ms / 1000)
        envelope = command.envelope
        values = (
            envelope.tenant,
            envelope.destination,
            envelope.delivery_id,
            envelope.operation_id,
            envelope.aggregate,
            envelope.sequence,
            envelope.command_type,
        )
        row = await (await transaction.execute(NOTE_EFFECT, values)).fetchone()
        assert row is not None
        return Done(source_version=f"effect-{row[0]}", evidence=f"ledger:effect/{row[0]}", count=1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note the request, serve it, and lose the answer when told to."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.listener(scope, receive, send)
            return
        body, messages = await _buffer(receive)
        await self._note(scope, body)
        replay = iter(messages)

        async def again() -> Message:
            return next(replay, None) or await receive()

        await self.listener(scope, again, self._lossy(send))

    def _lossy(self, send: Send) -> Send:
        is_dropped = False

        async def sent(message: Message) -> None:
            nonlocal is_dropped
            if message["type"] == "http.response.start" and message["status"] == 200:
                is_dropped = self._dropped < self._behaviour.drop_first
                self._dropped += is_dropped
            # The head without its body: the server closes the connection, the client has half an answer.
            if not (is_dropped and message["type"] == "http.response.body"):
                await send(message)

        return sent

    async def _note(self, scope: Scope, body: bytes) -> None:
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        values = (
            self._ledger.tenant,
            self._ledger.destination,
            headers.get("webhook-id", ""),
            headers.get("webhook-timestamp", ""),
            headers.get("webhook-signature", ""),
            sha256(body).hexdigest(),
        )
        async with self._writing:
            if self._book is None or self._book.closed:
                self._book = await psycopg.AsyncConnection.connect(self._ledger.dsn, autocommit=True)
            await self._book.execute(NOTE_ARRIVAL, values)


async def _buffer(receive: Receive) -> tuple[bytes, list[Message]]:
    messages: list[Message] = []
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(part.get("body", b"") for part in messages), messages


class LedgerProcess:
    """A ledger listener in a process of its own; a context manager."""

    def __init__(self, ledger: Ledger, *, log: Path | None = None) -> None:
        """Prepare it; `log` takes its messages, which otherwise go where this process's do."""
        self._ledger, self._log = ledger, log
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        """Start it and wait until it takes requests.

        Raises:
            UnavailableError: it ended instead; its messages are in the log.
        """
        ledger = self._ledger
        # The password in the DSN goes by the environment: command lines are visible to everyone.
        environ = {**environment(), **ledger.behaviour.environment(), "WAYBILL_LEDGER_DSN": ledger.dsn}
        command = [sys.executable, "-m", "waybill.testing.ledger_listener", "--tenant", ledger.tenant]
        command += ["--destination", ledger.destination, "--jwks", str(ledger.jwks), "--port", str(ledger.port)]
        with nullcontext() if self._log is None else self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UnavailableError(f"the ledger listener ended with exit code {self._process.wait(_START_TIMEOUT_S)}")
        self.url = json.loads(line)["url"]
        return self

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        """The port it took."""
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End it as a crash does, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it gracefully, and wait until it is gone; does nothing when it is."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.kill(process.pid, how)
            process.wait(_START_TIMEOUT_S)
            assert process.stdout is not None
            process.stdout.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()


def effects(dsn: str, *, tenant: str | None = None, destination: str | None = None) -> list[Effect]:
    """Return everything that took effect, in order."""
    return _read(dsn, READ_EFFECTS, Effect, tenant, destination)


def arrivals(dsn: str, *, tenant: str | None = None, destination: str | None = None) -> list[Arrival]:
    """Return every request that came in, in order."""
    return _read(dsn, READ_ARRIVALS, Arrival, tenant, destination)


def _read(dsn: str, query: str, row: type[Any], tenant: str | None, destination: str | None) -> list[Any]:
    values = {"tenant": tenant, "destination": destination}
    with (
        closing(psycopg.connect(dsn, autocommit=True)) as connection,
        connection.cursor(row_factory=class_row(row)) as cursor,
    ):
        return cursor.execute(query.encode(), values).fetchall()


def main() -> None:
    """Run one ledger listener until it is told to stop."""
    parser = argparse.ArgumentParser(prog="ledger_listener", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dsn", default=environment().get("WAYBILL_LEDGER_DSN"))
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--destination", required=True)
    parser.add_argument("--jwks", required=True)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    with psycopg.connect(given.dsn) as connection:
        connection.execute(LOCK)
        connection.execute(TABLES)
    ledger = Ledger(
        dsn=given.dsn,
        tenant=given.tenant,
        destination=given.destination,
        jwks=given.jwks,
        port=given.port,
        behaviour=Behaviour.load(environment()),
    )
    serve(LedgerApp(ledger), port=given.port, on_start=_announce)


def _announce(url: str) -> None:
    sys.stdout.write(json.dumps({"url": url, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
