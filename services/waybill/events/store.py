"""Positions and told events beside the outbox: with the commands, one transaction."""

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import psycopg

from waybill.events.core.telling import Event
from waybill.infra.migrate import migrate
from waybill.infra.postgres import identifier
from waybill.kernel.errors import FencedError
from waybill.kernel.ids import Tenant
from waybill.outbox import CommandDraft, Outbox

__all__ = ["PACKAGE", "EventStore", "schema_beside"]

PACKAGE: Final = "waybill.events.migrations"
#: Days after which a told event is forgotten; the topic of states keeps nothing for half as long.
KEPT_DAYS: Final = 90


def schema_beside(outbox_schema: str) -> str:
    """Return the schema that remembers what was told through an outbox."""
    return identifier(f"{outbox_schema}_events")


class EventStore:
    """What one tenant was told through one outbox, over a connection that is not in autocommit.

    Every method is one transaction and may raise psycopg.OperationalError.
    """

    def __init__(self, connection: psycopg.Connection[Any], tenant: Tenant, outbox_schema: str) -> None:
        """Make or upgrade the tables beside the outbox."""
        self._connection, self._tenant = connection, tenant
        self._schema = schema_beside(outbox_schema)
        migrate(connection, schema=self._schema, package=PACKAGE)
        connection.commit()
        self._outbox = Outbox(connection, tenant=tenant, schema=outbox_schema)

    def claim(self) -> bool:
        """Whether this process alone tells the tenant's events from now on, as long as the connection lives."""
        with self._connection.transaction():
            found = self._connection.execute(
                "SELECT pg_try_advisory_lock(hashtext(%s), hashtext(%s))", (self._schema, self._tenant)
            ).fetchone()
        return bool(found and found[0])

    def positions(self, topic: str, starts: Sequence[int]) -> dict[int, int]:
        """Return the next offset by partition; `starts` are kept for what was never read."""
        with self._connection.transaction():
            self._run(
                "INSERT INTO {schema}.position (topic, partition, next) "
                "SELECT %s, n - 1, next FROM unnest(%s::bigint[]) WITH ORDINALITY AS s (next, n) ON CONFLICT DO NOTHING",
                (topic, list(starts)),
            )
            rows = self._run("SELECT partition, next FROM {schema}.position WHERE topic = %s", (topic,)).fetchall()
        return dict(rows)

    def tell(
        self, topic: str, before: Mapping[int, int], after: Mapping[int, int], events: Sequence[Event]
    ) -> list[Event]:
        """Write the commands of events that were not told yet and move the positions; return those events.

        Raises:
            FencedError: another process moved the positions. Nothing was written.
            RefusedError: the outbox refuses a command. Nothing was written.
        """
        places = list(after)
        with self._connection.transaction():
            moved = self._run(
                "UPDATE {schema}.position p SET next = m.after "
                "FROM unnest(%s::integer[], %s::bigint[], %s::bigint[]) AS m (partition, before, after) "
                "WHERE p.topic = %s AND p.partition = m.partition AND p.next = m.before",
                (places, [before[place] for place in places], [after[place] for place in places], topic),
            ).rowcount
            if moved != len(places):
                raise FencedError("another process tells these events")
            fresh = self._fresh(events)
            self._outbox.emit_many([_draft(event) for event in fresh])
        return fresh

    def tell_without_position(self, events: Sequence[Event], wanted: Container[str]) -> list[Event]:
        """Write the commands of events of wanted types that were not looked at yet; return those events.

        Those of other types count as told: whoever asks for them later hears of what comes later.

        Raises:
            RefusedError: the outbox refuses a command. Nothing was written.
        """
        with self._connection.transaction():
            fresh = [event for event in self._fresh(events) if event.event_type in wanted]
            self._outbox.emit_many([_draft(event) for event in fresh])
        return fresh

    def _fresh(self, events: Sequence[Event]) -> list[Event]:
        """Note events as told; return those that were not."""
        asked = {event.event_id: event for event in events}
        rows = self._run(
            "INSERT INTO {schema}.told (event_id) SELECT e FROM unnest(%s::uuid[]) AS e "
            "ON CONFLICT (event_id) DO UPDATE SET read_at = excluded.read_at RETURNING event_id, xmax = 0",
            (list(asked),),
        ).fetchall()
        fresh_ids = {event_id for event_id, is_new in rows if is_new}
        return [event for event in asked.values() if event.event_id in fresh_ids]

    def forget(self) -> None:
        """Drop what no copy of a state can ask for any more."""
        with self._connection.transaction():
            self._run(
                "DELETE FROM {schema}.told WHERE read_at < clock_timestamp() - %s * interval '1 day'", (KEPT_DAYS,)
            )

    def _run(self, statement: str, values: tuple[Any, ...]) -> psycopg.Cursor[Any]:
        return self._connection.execute(statement.replace("{schema}", self._schema).encode(), values)


def _draft(event: Event) -> CommandDraft:
    return CommandDraft(
        aggregate_type=event.aggregate_type,
        aggregate_id=event.aggregate_id,
        command_type=event.event_type,
        operation_id=str(event.event_id),
        data=event.data,
    )
