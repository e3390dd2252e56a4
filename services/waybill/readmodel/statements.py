"""The SQL of the writer: batched inserts by `unnest`, one statement per table and batch.

Column lists are the fields of the row records, in order; a test compares them with the migration. `%(name)s`
parameters are arrays, one per column.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from psycopg import sql

__all__ = [
    "ANOMALY",
    "ATTEMPT",
    "CLAIM",
    "DEAD_LETTER",
    "DELIVERY",
    "FIND_HOLDERS",
    "FIND_HOLES",
    "FIND_TOPS",
    "FINGERPRINT",
    "MOVE",
    "MOVE_POSITIONS",
    "OPEN_POSITION",
    "RAISE_TOPS",
    "STATE",
    "Insert",
]


class Insert:
    """`INSERT … SELECT FROM unnest(…)` of records, with what to do about a key that is there."""

    def __init__(self, table: str, types: Mapping[str, str], conflict: str) -> None:
        self.columns: Final = tuple(types)
        self._values = attrgetter(*self.columns)
        self.statement: Final = sql.SQL("INSERT INTO read.{} ({}) SELECT * FROM unnest({}) {}").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, self.columns)),
            # binary: as text every element would be searched for characters to quote
            sql.SQL(", ").join(sql.SQL(f"%b::{kind}[]") for kind in types.values()),
            sql.SQL(conflict),
        )

    def arrays(self, rows: Iterable[object]) -> Sequence[list[Any]]:
        """Return one array per column; `rows` is not empty."""
        return [list(column) for column in zip(*map(self._values, rows), strict=True)]


_IDENTITY: Final = {
    "tenant": "text",
    "delivery_id": "uuid",
    "command_id": "uuid",
    "destination": "text",
    "aggregate": "text",
    "sequence": "integer",
}

#: The first record of a command wins, later ones only count: the outbox row never changes.
DELIVERY: Final = Insert(
    "delivery",
    {
        **_IDENTITY,
        "command_type": "text",
        "request_id": "text",
        "request_size": "bigint",
        "required": "boolean",
        "operation_id": "text",
        "instruction_version": "bigint",
        "replaces": "uuid",
        "command_config_version": "bigint",
        "issued_at": "timestamptz",
        "expires_at": "timestamptz",
        "in_topic_at": "timestamptz",
        "command_partition": "integer",
        "command_offset": "bigint",
        "copies": "integer",
    },
    """ON CONFLICT (tenant, delivery_id) DO UPDATE SET
        copies = delivery.copies + excluded.copies,
        command_type = coalesce(delivery.command_type, excluded.command_type),
        request_id = coalesce(delivery.request_id, excluded.request_id),
        request_size = coalesce(delivery.request_size, excluded.request_size),
        required = coalesce(delivery.required, excluded.required),
        operation_id = coalesce(delivery.operation_id, excluded.operation_id),
        instruction_version = coalesce(delivery.instruction_version, excluded.instruction_version),
        replaces = coalesce(delivery.replaces, excluded.replaces),
        command_config_version = coalesce(delivery.command_config_version, excluded.command_config_version),
        issued_at = coalesce(delivery.issued_at, excluded.issued_at),
        expires_at = coalesce(delivery.expires_at, excluded.expires_at),
        in_topic_at = coalesce(delivery.in_topic_at, excluded.in_topic_at),
        command_partition = coalesce(delivery.command_partition, excluded.command_partition),
        command_offset = coalesce(delivery.command_offset, excluded.command_offset)""",
)

#: A state counts only when its version is higher; identity from it fills what the command has not told yet.
STATE: Final = Insert(
    "delivery",
    {
        **_IDENTITY,
        "command_type": "text",
        "request_id": "text",
        "required": "boolean",
        "expires_at": "timestamptz",
        "state": "text",
        "version": "integer",
        "error_code": "text",
        "detail": "text",
        "attempt": "integer",
        "next_due": "timestamptz",
        "owner": "text",
        "proof_level": "text",
        "profile": "text",
        "config_version": "bigint",
        "updated_at": "timestamptz",
    },
    """ON CONFLICT (tenant, delivery_id) DO UPDATE SET
        command_type = coalesce(delivery.command_type, excluded.command_type),
        request_id = coalesce(delivery.request_id, excluded.request_id),
        required = coalesce(delivery.required, excluded.required),
        expires_at = coalesce(delivery.expires_at, excluded.expires_at),
        state = excluded.state,
        version = excluded.version,
        error_code = excluded.error_code,
        detail = excluded.detail,
        attempt = excluded.attempt,
        next_due = excluded.next_due,
        owner = excluded.owner,
        proof_level = excluded.proof_level,
        profile = excluded.profile,
        config_version = excluded.config_version,
        updated_at = excluded.updated_at
    WHERE delivery.version < excluded.version""",
)

ATTEMPT: Final = Insert(
    "attempt",
    {
        "tenant": "text",
        "attempt_id": "uuid",
        "delivery_id": "uuid",
        "kind": "text",
        "attempt": "integer",
        "started_at": "timestamptz",
        "ended_at": "timestamptz",
        "phase": "text",
        "http_status": "integer",
        "error_code": "text",
        "detail": "text",
        "state_before": "text",
        "state_after": "text",
        "version": "integer",
        "receipt_status": "text",
        "source_version": "text",
        "count": "bigint",
        "digest": "text",
        "evidence": "text",
        "proof_level": "text",
        "profile": "text",
        "config_version": "bigint",
        "body_sha256": "text",
        "worker": "text",
    },
    "ON CONFLICT (tenant, attempt_id) DO NOTHING",
)

MOVE: Final = Insert(
    "move",
    {
        "tenant": "text",
        "outcome_id": "uuid",
        "delivery_id": "uuid",
        "version": "integer",
        "state_before": "text",
        "state_after": "text",
        "error_code": "text",
        "detail": "text",
        "attempt_id": "uuid",
        "ended_at": "timestamptz",
    },
    "ON CONFLICT (tenant, outcome_id) DO NOTHING",
)

DEAD_LETTER: Final = Insert(
    "dead_letter",
    {
        "tenant": "text",
        "dead_letter_id": "uuid",
        "topic": "text",
        "partition": "integer",
        "offset": "bigint",
        "destination": "text",
        "delivery_id": "uuid",
        "aggregate": "text",
        "sequence": "integer",
        "code": "text",
        "cause": "text",
        "detail": "text",
        "value_sha256": "text",
        "value_bytes": "integer",
        "owner": "text",
        "config_version": "bigint",
        "recorded_by": "text",
        "recorded_at": "timestamptz",
    },
    "ON CONFLICT (tenant, dead_letter_id) DO NOTHING",
)

#: The same anomaly again is a hole that shrank.
ANOMALY: Final = Insert(
    "anomaly",
    {
        "tenant": "text",
        "kind": "text",
        "topic": "text",
        "partition": "integer",
        "offset": "bigint",
        "destination": "text",
        "aggregate": "text",
        "first_sequence": "integer",
        "last_sequence": "integer",
        "missing": "integer",
        "delivery_id": "uuid",
        "other_id": "uuid",
        "detail": "text",
        "seen_at": "timestamptz",
        "resolved_at": "timestamptz",
    },
    """ON CONFLICT (tenant, kind, topic, partition, "offset", destination) DO UPDATE SET
        missing = excluded.missing, resolved_at = excluded.resolved_at""",
)

#: Compare and set: fewer rows than asked means another process moved a position, or a rebuild removed it.
MOVE_POSITIONS: Final = """
UPDATE read.position AS p
SET next = v.after, newest_at = greatest(p.newest_at, v.newest_at)
FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[], %s::timestamptz[])
    AS v (topic, partition, before, after, newest_at)
WHERE p.topic = v.topic AND p.partition = v.partition AND p.next = v.before
"""

CLAIM: Final = """
SELECT v.tenant FROM unnest(%s::text[]) AS v (tenant)
WHERE pg_try_advisory_lock(hashtextextended('waybill.read.' || v.tenant, 0))
"""

OPEN_POSITION: Final = """
INSERT INTO read.position (topic, partition, tenant, base, next)
SELECT v.topic, v.partition, v.tenant, v.first, v.first
FROM unnest(%s::text[], %s::integer[], %s::text[], %s::bigint[]) AS v (topic, partition, tenant, first)
ON CONFLICT (topic, partition) DO NOTHING
"""

FIND_TOPS: Final = """
SELECT n.tenant, n.aggregate, n.destination, n.top
FROM read.numbering AS n
JOIN unnest(%s::text[], %s::text[], %s::text[]) AS v (tenant, aggregate, destination)
    USING (tenant, aggregate, destination)
"""

#: Who had a number first, among records of the commands topic.
FIND_HOLDERS: Final = """
SELECT DISTINCT ON (d.tenant, d.aggregate, d.destination, d.sequence)
    d.tenant, d.aggregate, d.destination, d.sequence, d.delivery_id
FROM read.delivery AS d
JOIN unnest(%s::text[], %s::text[], %s::text[], %s::integer[]) AS v (tenant, aggregate, destination, sequence)
    USING (tenant, aggregate, destination, sequence)
WHERE d.copies > 0
ORDER BY d.tenant, d.aggregate, d.destination, d.sequence, d.command_offset
"""

FIND_HOLES: Final = """
SELECT a.tenant, a.kind, a.topic, a.partition, a."offset", a.destination, a.aggregate, a.first_sequence,
    a.last_sequence, a.missing, a.delivery_id, a.other_id, a.detail, a.seen_at, a.resolved_at
FROM read.anomaly AS a
JOIN unnest(%s::text[], %s::text[], %s::text[]) AS v (tenant, aggregate, destination)
    USING (tenant, aggregate, destination)
WHERE a.kind = 'hole' AND a.resolved_at IS NULL
ORDER BY a.first_sequence
"""

RAISE_TOPS: Final = """
INSERT INTO read.numbering (tenant, aggregate, destination, top)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::integer[])
ON CONFLICT (tenant, aggregate, destination) DO UPDATE SET top = excluded.top
"""

#: One hash over every row of every table but the positions: equal after a rebuild.
FINGERPRINT: Final = """
SELECT md5(coalesce(string_agg(h, '' ORDER BY h), '')) FROM (
    SELECT md5('delivery' || d::text) AS h FROM read.delivery AS d WHERE %(tenant)s::text IS NULL OR d.tenant = %(tenant)s
    UNION ALL SELECT md5('attempt' || a::text) FROM read.attempt AS a WHERE %(tenant)s::text IS NULL OR a.tenant = %(tenant)s
    UNION ALL SELECT md5('move' || m::text) FROM read.move AS m WHERE %(tenant)s::text IS NULL OR m.tenant = %(tenant)s
    UNION ALL SELECT md5('dead' || l::text) FROM read.dead_letter AS l WHERE %(tenant)s::text IS NULL OR l.tenant = %(tenant)s
    UNION ALL SELECT md5('number' || n::text) FROM read.numbering AS n WHERE %(tenant)s::text IS NULL OR n.tenant = %(tenant)s
    UNION ALL SELECT md5('anomaly' || y::text) FROM read.anomaly AS y WHERE %(tenant)s::text IS NULL OR y.tenant = %(tenant)s
) AS hashes
"""
