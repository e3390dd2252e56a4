"""Reading what was heard: for people, never for a decision. The owner of a partition alone writes.

Every result of the topic has a row, whatever door it came in by: published by its destination, or posted and then
published by the API. What the API refused at its own door never reached the topic and is not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from waybill.delivery.core.results.weighing import Weighed

__all__ = ["ResultFilter", "find_results", "list_results"]

_LISTED: Final = """arrived_at, destination, result_id, delivery_id, aggregate, weighed, reason, key_id, skew_ms,
    is_quarantined, partition, record_offset, weighed_at, body_sha256"""
_LIST: Final = f"""
SELECT {_LISTED} FROM delivery.result
WHERE tenant = %(tenant)s
  AND (%(destination)s::text IS NULL OR destination = %(destination)s)
  AND (%(delivery)s::uuid IS NULL OR delivery_id = %(delivery)s)
  AND (%(weighed)s::text IS NULL OR weighed = %(weighed)s)
  AND (NOT %(is_quarantined)s OR is_quarantined)
ORDER BY arrived_at DESC, destination, partition, record_offset DESC
LIMIT %(limit)s
"""  # noqa: S608 - constants
_FIND: Final = f"""
SELECT {_LISTED}, said, signed_timestamp, signature, body FROM delivery.result
WHERE tenant = %s AND result_id = %s ORDER BY arrived_at, destination, partition, record_offset
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFilter:
    """Which results; None is any."""

    tenant: str
    destination: str | None = None
    delivery: UUID | None = None
    weighed: Weighed | None = None
    #: Only those of destinations whose clock was wrong.
    is_quarantined: bool = False
    limit: int = 50


def list_results(connection: psycopg.Connection[Any], wanted: ResultFilter) -> Sequence[dict[str, Any]]:
    """Return what was heard, newest first, without what it says."""
    values = {
        "tenant": wanted.tenant,
        "destination": wanted.destination,
        "delivery": wanted.delivery,
        "weighed": wanted.weighed.value if wanted.weighed is not None else None,
        "is_quarantined": wanted.is_quarantined,
        "limit": wanted.limit,
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_LIST.encode(), values).fetchall()


def find_results(connection: psycopg.Connection[Any], tenant: str, result_id: UUID) -> Sequence[dict[str, Any]]:
    """Return every record of one result, its copies too, oldest first, with what it says and how it was signed."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_FIND.encode(), (tenant, result_id)).fetchall()
