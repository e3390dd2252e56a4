"""Comparing outbox rows with the records on the topics, and writing what is missing.

Rows are walked in `position` order, which within an aggregate is the order of its sequence: the counter row's lock is
held from the number to the commit. What is missing is read in full in batches from the same snapshot and written with
the bytes the connector would have written.

A compacted topic forgets records that were replaced, so there only the last row of each key is compared: writing an
older one would set an object back.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

import psycopg
from psycopg import sql

from waybill.infra.kafka_admin import KafkaAdmin, TopicFacts
from waybill.infra.topic_log import LogRecord, LogWriter, offsets_at, scan
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError
from waybill.relay.core.wire import Layout, column_text, headers_of

__all__ = ["Comparison", "Count"]

#: Rows republished in one transaction.
_BATCH: Final = 500
#: A record is published after its row was made; clocks of two machines differ by less than this.
_SLACK: Final = timedelta(days=1)

_ALL: Final = "SELECT created_day, position, {id}, {key} FROM {table} ORDER BY position"
# Decisions are no objects: each of them counts.
_NEWEST_OF_KEY: Final = """
    SELECT created_day, position, {id}, {key} FROM (
        SELECT DISTINCT ON (route, {key}, each) created_day, position, {id}, {key}
        FROM (SELECT *, CASE WHEN route LIKE '%%.decisions' THEN position END AS each FROM {table}) AS o
        ORDER BY route, {key}, each, position DESC) AS newest
    ORDER BY position
"""
_FULL: Final = """
    SELECT o.route, o.{key}, o.payload, o.{id}::text{texts} FROM {table} o
        JOIN unnest(%s::date[], %s::bigint[]) AS k (day, place) ON o.created_day = k.day AND o.position = k.place
    ORDER BY o.position
"""


@dataclass(slots=True)
class Count:
    """What a comparison found and did, in rows."""

    topics: tuple[str, ...] = ()
    compared: int = 0
    not_judged: int = 0
    missing: int = 0
    republished: int = 0
    reordered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One outbox table against the topics its rows are routed to."""

    schema: str
    table: str
    layout: Layout
    #: What stands before a route in the topic's name.
    prefix: str
    kafka: str
    admin: KafkaAdmin
    clock: Clock
    since: date | None
    progress: Callable[[str], None] = field(repr=False)

    def run(self, connection: psycopg.Connection, writer: LogWriter | None) -> Count:
        """Compare what the open transaction sees with the topics as they are now; write what they lack.

        Without a writer nothing is written.

        Raises:
            ConfigError: a topic of a row does not exist.
        """
        topics = self._topics(connection)
        facts = self.admin.topics(topics)
        if absent := sorted(set(topics) - facts.keys()):
            raise ConfigError(f"topics do not exist: {', '.join(absent)}; run `waybill topics apply` first")
        known: set[bytes] = set()
        for topic in topics:
            known |= self._ids(facts[topic])
            self.progress(f"{topic}: read; {len(known)} commands so far")
        count = Count(topics=topics)
        batch: list[tuple[date, int]] = []
        for key in self._missing(connection, known, self._horizon(facts), count):
            batch.append(key)
            if len(batch) == _BATCH:
                self._republish(connection, batch, writer, count)
                batch.clear()
        self._republish(connection, batch, writer, count)
        return count

    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    def _topics(self, connection: psycopg.Connection) -> tuple[str, ...]:
        query = sql.SQL(
            "SELECT DISTINCT route FROM {} WHERE %(since)s::date IS NULL OR created_day >= %(since)s"
        ).format(self._identifier())
        rows = connection.execute(query, {"since": self.since})
        return tuple(sorted(self.prefix + row[0] for row in rows))

    def _horizon(self, facts: Mapping[str, TopicFacts]) -> date | None:
        """Return the first day whose rows can be judged; None when all can."""
        if self.layout.is_compacted:
            return self.since
        days = [self.since, *(self._oldest_day(topic) for topic in facts.values())]
        return max((day for day in days if day is not None), default=None)

    def _oldest_day(self, topic: TopicFacts) -> date | None:
        """Return the first day of which a topic still holds everything; None when nothing was ever aged out."""
        numbers = range(topic.partitions)
        starts = self.admin.earliest_offsets(topic.name, topic.partitions)
        if not any(starts):
            return None
        ends = self.admin.end_offsets(topic.name, topic.partitions)
        if any(0 < starts[n] == ends[n] for n in numbers):  # all of a partition is gone: nothing before now is known
            return self.clock.now().date() + timedelta(days=1)
        oldest = self.admin.first_timestamps_ms(topic.name, [n for n in numbers if starts[n] > 0])
        return datetime.fromtimestamp(max(oldest) / 1000, UTC).date() + timedelta(days=1)

    def _ids(self, topic: TopicFacts) -> set[bytes]:
        starts = self.admin.earliest_offsets(topic.name, topic.partitions)
        ends = self.admin.end_offsets(topic.name, topic.partitions)
        if self.since is not None and not self.layout.is_compacted:
            first = datetime(self.since.year, self.since.month, self.since.day, tzinfo=UTC) - _SLACK
            found = offsets_at(self.kafka, topic.name, topic.partitions, int(first.timestamp() * 1000))
            starts = [at if at >= 0 else end for at, end in zip(found, ends, strict=True)]
        return {
            UUID(value.decode()).bytes
            for record in scan(self.kafka, topic.name, starts=starts, ends=ends, clock=self.clock)
            for name, value in record.headers
            if name == "id" and value is not None
        }

    def _missing(
        self, connection: psycopg.Connection, known: set[bytes], horizon: date | None, count: Count
    ) -> Iterator[tuple[date, int]]:
        """Yield day and position of the rows the topics lack, oldest first."""
        query = sql.SQL(_NEWEST_OF_KEY if self.layout.is_compacted else _ALL).format(
            id=sql.Identifier(self.layout.id_column),
            key=sql.Identifier(self.layout.key_column),
            table=self._identifier(),
        )
        behind: set[str] = set()
        with connection.cursor(name="waybill_recover") as cursor:
            cursor.itersize = 5000
            for day, position, row_id, key in cursor.execute(query):
                if horizon is not None and day < horizon:
                    count.not_judged += 1
                    continue
                count.compared += 1
                if row_id.bytes not in known:
                    behind.add(key)
                    count.missing += 1
                    yield day, position
                elif key in behind:
                    behind.discard(key)
                    count.reordered += 1

    def _republish(
        self,
        connection: psycopg.Connection,
        batch: list[tuple[date, int]],
        writer: LogWriter | None,
        count: Count,
    ) -> None:
        if not batch or writer is None:
            return
        days, positions = [day for day, _ in batch], [position for _, position in batch]
        rows = connection.execute(self._full_rows(), (days, positions)).fetchall()
        writer.write(
            [
                LogRecord(
                    topic=self.prefix + route,
                    key=key.encode(),
                    value=payload,
                    headers=headers_of(self.layout, row_id, texts),
                )
                for route, key, payload, row_id, *texts in rows
            ]
        )
        count.republished += len(rows)
        self.progress(f"republished {count.republished}")

    def _full_rows(self) -> sql.Composed:
        texts = sql.SQL("").join(sql.SQL(", {}").format(sql.SQL(column_text(c))) for c, _ in self.layout.headers)
        return sql.SQL(_FULL).format(
            key=sql.Identifier(self.layout.key_column),
            id=sql.Identifier(self.layout.id_column),
            texts=texts,
            table=self._identifier(),
        )
