"""Which deliveries people mean: by id, by what they have in common, by when they were moved last.

Read through a cursor of the database, so that a selection of a million deliveries is not held by anybody.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from waybill.readmodel.query import Row

__all__ = ["Selection", "select"]

_MANY: Final = 2_000

# A delivery that was never moved was moved last when its command was issued.
SELECT: Final = """
SELECT d.tenant, d.destination, d.aggregate, d.sequence, d.delivery_id, d.command_id, d.command_type, d.state, d.version,
    d.error_code, d.detail, d.expires_at, coalesce(d.updated_at, d.issued_at) AS moved_at,
    EXISTS (
        SELECT FROM read.delivery AS r
        WHERE r.tenant = d.tenant AND r.aggregate = d.aggregate AND r.destination = d.destination
            AND r.sequence > d.sequence AND r.replaces = d.command_id) AS is_replaced
FROM read.delivery AS d
WHERE (%(ids)s::uuid[] IS NULL OR d.delivery_id = ANY (%(ids)s))
    AND (%(tenant)s::text IS NULL OR d.tenant = %(tenant)s)
    AND (%(destination)s::text IS NULL OR d.destination = %(destination)s)
    AND (%(state)s::text IS NULL OR d.state = %(state)s)
    AND (%(code)s::text IS NULL OR d.error_code = %(code)s)
    AND (%(command_type)s::text IS NULL OR d.command_type = %(command_type)s)
    AND (%(aggregate)s::text IS NULL OR d.aggregate = %(aggregate)s)
    AND (%(since)s::timestamptz IS NULL OR coalesce(d.updated_at, d.issued_at) >= %(since)s)
    AND (%(before)s::timestamptz IS NULL OR coalesce(d.updated_at, d.issued_at) < %(before)s)
    AND d.command_type IS DISTINCT FROM 'waybill.gap-resolution'
ORDER BY d.tenant, d.destination, d.aggregate, d.sequence
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Deliveries that have everything in common that is said here; None means any."""

    ids: Sequence[UUID] | None = None
    tenant: str | None = None
    destination: str | None = None
    state: str | None = None
    code: str | None = None
    command_type: str | None = None
    aggregate: str | None = None
    #: Moved last at this instant or later, and before that one.
    since: datetime | None = None
    before: datetime | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing narrows it."""
        return all(getattr(self, name) is None for name in self.__slots__)


def select(connection: psycopg.Connection[Any], wanted: Selection) -> Iterator[Row]:
    """Yield the deliveries that are meant, in the order of their lanes; the read model must be there."""
    values = {name: getattr(wanted, name) for name in wanted.__slots__}
    values["ids"] = None if wanted.ids is None else list(wanted.ids)
    with connection.transaction(), connection.cursor("meant", row_factory=dict_row) as cursor:
        cursor.itersize = _MANY
        yield from cursor.execute(SELECT, values)
