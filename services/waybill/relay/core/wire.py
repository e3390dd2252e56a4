"""The record Debezium makes of an outbox row, as SQL that yields it and a function that puts it together.

Recovery must write the very bytes the connector would have written, so the text form of every column is fixed here:
the key as it is, each header as the column's text, `timestamptz` as Debezium's ISO form in UTC with six digits of a
second. Header `id` comes first, then the placement list in its order; a null column is a
header with a null value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from waybill.contracts.command import HEADERS
from waybill.relay.core.connection import OutboxKind

__all__ = ["LAYOUTS", "Layout", "column_text", "headers_of"]

_INSTANTS: Final = frozenset({"issued_at", "expires_at"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a kind of outbox table holds."""

    id_column: str
    key_column: str
    #: (column, header), in the order of the connector's placement list.
    headers: tuple[tuple[str, str], ...]
    #: Whether its topics keep only the last record of a key.
    is_compacted: bool


LAYOUTS: Final[dict[OutboxKind, Layout]] = {
    OutboxKind.OUTBOX: Layout(
        id_column="command_id",
        key_column="aggregate",
        headers=tuple((field.column, field.header) for field in HEADERS),
        is_compacted=False,
    ),
    OutboxKind.CONTROL: Layout(id_column="id", key_column="key", headers=(), is_compacted=True),
}


def column_text(column: str) -> str:
    """Return the SQL expression for a column's header text, the outbox being `o`."""
    if column in _INSTANTS:
        return f"""to_char(o.{column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    return f"o.{column}::text"


def headers_of(layout: Layout, row_id: str, texts: Sequence[str | None]) -> tuple[tuple[str, bytes | None], ...]:
    """Return a record's headers from the texts of its columns, in the layout's order."""
    placed = zip(layout.headers, texts, strict=True)
    return (("id", row_id.encode()), *((header, _bytes(text)) for (_, header), text in placed))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
