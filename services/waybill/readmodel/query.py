"""The reader's side: what the CLI and APIs ask of the read model. Never writes.

Identifiers may be shortened to a unique prefix, like a commit's.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from waybill.contracts.envelope import GAP_RESOLUTION_TYPE
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["DeliveryFilter", "ReadModel", "id_range"]

Row = Mapping[str, Any]

_PREFIX: Final = re.compile(r"^[0-9a-f]{4,32}$")
#: Longest list of candidates an ambiguous prefix is answered with.
CANDIDATES: Final = 8


def id_range(prefix: str) -> tuple[uuid.UUID, uuid.UUID]:
    """Return the lowest and highest id that begins with a prefix; hyphens and case do not matter.

    Raises:
        ConfigError: not 4 to 32 hexadecimal digits.
    """
    digits = prefix.replace("-", "").lower()
    if not _PREFIX.match(digits):
        raise ConfigError(f"{prefix!r} is not a delivery or command id, nor the first 4 or more digits of one")
    return uuid.UUID(digits.ljust(32, "0")), uuid.UUID(digits.ljust(32, "f"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which deliveries to list; None means any."""

    tenant: str | None = None
    destination: str | None = None
    state: str | None = None
    aggregate: str | None = None
    request_id: str | None = None
    limit: int = 50


_COUNTED: Final = """
    d.*,
    (SELECT count(*) FROM read.attempt AS a
        WHERE a.tenant = d.tenant AND a.delivery_id = d.delivery_id) AS attempts,
    (SELECT max(a.ended_at) FROM read.attempt AS a
        WHERE a.tenant = d.tenant AND a.delivery_id = d.delivery_id) AS last_attempt_at
"""

_LIST: Final = f"""
SELECT {_COUNTED} FROM read.delivery AS d
WHERE (%(tenant)s::text IS NULL OR d.tenant = %(tenant)s)
    AND (%(destination)s::text IS NULL OR d.destination = %(destination)s)
    AND (%(state)s::text IS NULL OR d.state = %(state)s)
    AND (%(aggregate)s::text IS NULL OR d.aggregate = %(aggregate)s)
    AND (%(request_id)s::text IS NULL OR d.request_id = %(request_id)s)
ORDER BY d.issued_at DESC NULLS FIRST, d.tenant, d.aggregate, d.destination, d.sequence DESC
LIMIT %(limit)s
"""  # noqa: S608 - constants

_FIND: Final = f"""
SELECT {_COUNTED} FROM read.delivery AS d
WHERE d.delivery_id BETWEEN %(low)s AND %(high)s OR d.command_id BETWEEN %(low)s AND %(high)s
ORDER BY d.command_id, d.destination
LIMIT 500
"""  # noqa: S608 - constants

_WAITS_FOR: Final = """
SELECT min(e.sequence) FROM read.delivery AS e
WHERE e.tenant = %(tenant)s AND e.aggregate = %(aggregate)s AND e.destination = %(destination)s
    AND e.sequence < %(sequence)s AND e.state <> 'acknowledged'
"""

_COUNTS: Final = """
SELECT d.tenant, d.destination, d.state, count(*) AS deliveries, min(coalesce(d.updated_at, d.issued_at)) AS oldest
FROM read.delivery AS d
WHERE (%(tenant)s::text IS NULL OR d.tenant = %(tenant)s)
    AND (%(destination)s::text IS NULL OR d.destination = %(destination)s)
GROUP BY d.tenant, d.destination, d.state
ORDER BY d.tenant, d.destination, d.state
"""

_STANDING: Final = """
SELECT d.delivery_id, d.tenant, d.destination, d.state, d.error_code, a.attempts, a.unsent_repeats
FROM read.delivery AS d
CROSS JOIN LATERAL (
    SELECT count(*) AS attempts, count(*) FILTER (WHERE a.kind = 'repeat' AND a.phase IS NULL) AS unsent_repeats
    FROM read.attempt AS a WHERE a.tenant = d.tenant AND a.delivery_id = d.delivery_id
) AS a
WHERE d.delivery_id = ANY (%(ids)s)
"""

_DEAD_LETTERS: Final = "SELECT count(*) FROM read.dead_letter WHERE delivery_id = ANY (%(ids)s)"

_REFUSED: Final = """
SELECT * FROM read.dead_letter AS d WHERE d.tenant = %(tenant)s AND d.topic = %(topic)s
ORDER BY d.recorded_at DESC, d.partition, d."offset" DESC LIMIT %(limit)s
"""

_OPEN_ANOMALIES: Final = """
SELECT a.tenant, a.kind, count(*) AS anomalies, min(a.seen_at) AS oldest FROM read.anomaly AS a
WHERE a.resolved_at IS NULL GROUP BY a.tenant, a.kind ORDER BY a.tenant, a.kind
"""

_ANOMALIES: Final = """
SELECT * FROM read.anomaly AS a
WHERE (%(tenant)s::text IS NULL OR a.tenant = %(tenant)s)
    AND (%(destination)s::text IS NULL OR a.destination = %(destination)s)
    AND (%(aggregate)s::text IS NULL OR a.aggregate = %(aggregate)s)
ORDER BY a.resolved_at IS NOT NULL, a.seen_at DESC, a.tenant, a.topic, a.partition, a."offset"
LIMIT %(limit)s
"""

_TOPS: Final = (
    "SELECT n.aggregate, n.top FROM read.numbering AS n WHERE n.tenant = %(tenant)s AND n.destination = %(destination)s"
)

# Of what waits in the log only the first of each aggregate: there may be millions behind it.
_NOT_ACKNOWLEDGED: Final = """
(SELECT d.aggregate, d.sequence, d.delivery_id, d.state, d.detail, d.expires_at FROM read.delivery AS d
 WHERE d.tenant = %(tenant)s AND d.destination = %(destination)s AND d.state <> 'acknowledged'
    AND (d.state <> 'queued' OR d.version > 0) AND d.command_type IS DISTINCT FROM %(resolution)s)
UNION ALL
(SELECT DISTINCT ON (d.aggregate) d.aggregate, d.sequence, d.delivery_id, d.state, d.detail, d.expires_at
 FROM read.delivery AS d
 WHERE d.tenant = %(tenant)s AND d.destination = %(destination)s AND d.state = 'queued' AND d.version = 0
    AND d.command_type IS DISTINCT FROM %(resolution)s
 ORDER BY d.aggregate, d.sequence)
"""

_BROKEN: Final = """
SELECT DISTINCT a.aggregate FROM read.anomaly AS a
WHERE a.tenant = %(tenant)s AND a.destination = %(destination)s AND a.resolved_at IS NULL
    AND a.kind IN ('hole', 'reused_number') AND a.aggregate IS NOT NULL
"""


class ReadModel:
    """Answers about deliveries over the caller's connection.

    Every method raises UnavailableError when the schema is not there yet.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def list(self, wanted: DeliveryFilter) -> Sequence[Row]:
        """Return deliveries, newest first, with `attempts` and `last_attempt_at`."""
        return self._rows(
            _LIST,
            {
                "tenant": wanted.tenant,
                "destination": wanted.destination,
                "state": wanted.state,
                "aggregate": wanted.aggregate,
                "request_id": wanted.request_id,
                "limit": wanted.limit,
            },
        )

    def find(self, prefix: str) -> Sequence[Row]:
        """Return the delivery with this id, or the deliveries of the command with this id, by unique prefix.

        Empty when the read model has none.

        Raises:
            ConfigError: not an id, or several deliveries of several commands begin like this.
        """
        low, high = id_range(prefix)
        rows = self._rows(_FIND, {"low": low, "high": high})
        by_delivery = [row for row in rows if low <= row["delivery_id"] <= high]
        by_command = [row for row in rows if low <= row["command_id"] <= high]
        commands = {row["command_id"] for row in by_command}
        if len(by_delivery) + len(commands) > 1:
            found = [str(row["delivery_id"]) for row in by_delivery] + [str(command) for command in sorted(commands)]
            more = f" and {len(found) - CANDIDATES} more" if len(found) > CANDIDATES else ""
            raise ConfigError(f"{prefix} is not unique: {', '.join(found[:CANDIDATES])}{more}")
        return by_delivery or by_command

    def attempts(self, delivery: Row) -> Sequence[Row]:
        """Return every audited try of a delivery, oldest first."""
        return self._of(delivery, "attempt", "started_at, attempt, attempt_id")

    def moves(self, delivery: Row) -> Sequence[Row]:
        """Return every move of a delivery's state, in order."""
        return self._of(delivery, "move", "version")

    def dead_letters(self, delivery: Row) -> Sequence[Row]:
        """Return the dead letters that name a delivery, oldest first."""
        return self._of(delivery, "dead_letter", "recorded_at")

    def waits_for(self, delivery: Row) -> int | None:
        """Return the lowest earlier number of the same aggregate and destination that is not acknowledged."""
        return self._rows(_WAITS_FOR, dict(delivery))[0]["min"]  # type: ignore[no-any-return]  # an integer column

    def counts(self, tenant: str | None = None, destination: str | None = None) -> Sequence[Row]:
        """Return deliveries by tenant, destination and state, with the instant of the oldest."""
        return self._rows(_COUNTS, {"tenant": tenant, "destination": destination})

    def anomalies(self, wanted: DeliveryFilter) -> Sequence[Row]:
        """Return what should not be in the topics, open ones first; state and request do not narrow it."""
        return self._rows(
            _ANOMALIES,
            {
                "tenant": wanted.tenant,
                "destination": wanted.destination,
                "aggregate": wanted.aggregate,
                "limit": wanted.limit,
            },
        )

    def standing(self, ids: Sequence[uuid.UUID]) -> Sequence[Row]:
        """Return state, error code, attempts and unsent repeats of those of the deliveries that are known.

        An unsent repeat is a command that came again and was settled by a row, without a request.
        """
        return self._rows(_STANDING, {"ids": list(ids)})

    def dead_letter_count(self, ids: Sequence[uuid.UUID]) -> int:
        """Return how many dead letters name one of these deliveries."""
        return int(self._rows(_DEAD_LETTERS, {"ids": list(ids)})[0]["count"])

    def refused(self, tenant: str, topic: str, limit: int) -> Sequence[Row]:
        """Return dead letters of records of a topic, newest first."""
        return self._rows(_REFUSED, {"tenant": tenant, "topic": topic, "limit": limit})

    def open_anomalies(self) -> Sequence[Row]:
        """Return by tenant and kind how many anomalies nobody resolved, and when the oldest was seen."""
        return self._rows(_OPEN_ANOMALIES, {})

    def tops(self, tenant: str, destination: str) -> dict[str, int]:
        """Return by aggregate the highest number a destination has been given."""
        rows = self._rows(_TOPS, {"tenant": tenant, "destination": destination})
        return {row["aggregate"]: row["top"] for row in rows}

    def not_acknowledged(self, tenant: str, destination: str) -> Sequence[Row]:
        """Return what is not acknowledged at a destination; of what nobody attempted the first of each aggregate."""
        values = {"tenant": tenant, "destination": destination, "resolution": GAP_RESOLUTION_TYPE}
        return self._rows(_NOT_ACKNOWLEDGED, values)

    def broken(self, tenant: str, destination: str) -> frozenset[str]:
        """Return aggregates with a hole, or with a number that two deliveries have, while nobody resolved it."""
        rows = self._rows(_BROKEN, {"tenant": tenant, "destination": destination})
        return frozenset(row["aggregate"] for row in rows)

    def positions(self, tenant: str | None = None) -> dict[tuple[str, int], tuple[int, datetime | None]]:
        """Return by topic and partition the next offset to fold and the time of the newest record folded."""
        rows = self._rows(
            "SELECT * FROM read.position WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s ORDER BY topic, partition",
            {"tenant": tenant},
        )
        return {(row["topic"], row["partition"]): (row["next"], row["newest_at"]) for row in rows}

    def _of(self, delivery: Row, table: str, order: str) -> Sequence[Row]:
        return self._rows(
            f"SELECT * FROM read.{table} WHERE tenant = %(tenant)s AND delivery_id = %(delivery_id)s ORDER BY {order}",  # noqa: S608 - our names
            dict(delivery),
        )

    def _rows(self, query: str, parameters: Mapping[str, Any]) -> Sequence[Row]:
        try:
            with self._connection.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(query.encode(), parameters).fetchall()
        except psycopg.errors.UndefinedTable as error:
            raise UnavailableError(
                "the control database holds no read model: run `waybill read-model run`, which makes and fills it"
            ) from error
