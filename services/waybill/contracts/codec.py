"""Avro with registry framing: the bytes of state, outcomes and dead letters.

A value is one zero byte, the schema's registry id in four bytes big-endian, then the Avro body. Writers hold
their own schema and its id; readers ask for the writer's schema by the id in the frame and resolve it against
their own, so that both may be upgraded in either order. Schemas are the files in `avro/`, one record each,
full name `waybill.<file name>`; what is not in them cannot be written.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import fastavro
from fastavro.types import Schema

from waybill.kernel.errors import ContractError, InvariantBroken

__all__ = [
    "DEAD_LETTER",
    "DECISION",
    "OUTCOME",
    "REQUEST_STATE",
    "TASK_STATE",
    "AvroReader",
    "AvroWriter",
    "schema_text",
    "split_frame",
]

#: Names of the record schemas: file names under `avro/`.
TASK_STATE: Final = "TaskState"
OUTCOME: Final = "Outcome"
DEAD_LETTER: Final = "DeadLetter"
DECISION: Final = "Decision"
REQUEST_STATE: Final = "RequestState"

_FRAME: Final = struct.Struct(">bI")
_PLACES: Final = (
    Path(__file__).parents[1] / "_resources" / "avro",  # an installed wheel
    Path(__file__).parents[3] / "avro",  # a checkout; tried first, an editable install may hold a stale copy
)


@cache
def schema_text(name: str) -> str:
    """Return the schema file of a record as text.

    Raises:
        InvariantBroken: the distribution lacks it.
    """
    for folder in reversed(_PLACES):
        path = folder / f"{name}.avsc"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise InvariantBroken(f"avro/{name}.avsc is missing from this installation")


@cache
def _parse(text: str) -> Schema:
    return fastavro.parse_schema(json.loads(text))


def split_frame(value: bytes) -> tuple[int, bytes]:
    """Return schema id and Avro body.

    Raises:
        ContractError: the value does not carry the frame.
    """
    if len(value) < _FRAME.size or value[0] != 0:
        raise ContractError("the value has no schema registry frame")
    return _FRAME.unpack_from(value)[1], value[_FRAME.size :]


class AvroWriter:
    """Encodes one record type under one registered schema id. Instants are aware datetimes or integers (ms)."""

    __slots__ = ("_schema", "prefix", "schema_id")

    def __init__(self, name: str, schema_id: int) -> None:
        self.schema_id = schema_id
        #: The five bytes before every Avro body of this schema.
        self.prefix = _FRAME.pack(0, schema_id)
        self._schema = _parse(schema_text(name))

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """Return the framed value; absent optional fields are null. Raises ValueError or TypeError on a wrong record."""
        out = io.BytesIO()
        out.write(self.prefix)
        fastavro.schemaless_writer(out, self._schema, record)
        return out.getvalue()


class AvroReader:
    """Decodes one record type from whatever registered schema it was written with.

    Args:
        name: the reader's schema, a file name under `avro/`.
        fetch: returns the text of a registered schema by id; called once per id.
    """

    def __init__(self, name: str, fetch: Callable[[int], str]) -> None:
        self._reader = _parse(schema_text(name))
        self._fetch = fetch
        self._writers: dict[int, Schema] = {}

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the record by field name: enums as text, instants as aware UTC datetimes.

        Raises:
            ContractError: not framed, or not readable under the schema it names.
        """
        schema_id, body = split_frame(value)
        writer = self._writers.get(schema_id)
        if writer is None:
            writer = self._writers[schema_id] = _parse(self._fetch(schema_id))
        try:
            record = fastavro.schemaless_reader(io.BytesIO(body), writer, self._reader)
        except (ValueError, TypeError, KeyError, IndexError, EOFError, fastavro.read.SchemaResolutionError) as error:
            raise ContractError(f"the value is not readable under schema {schema_id}") from error
        return cast("dict[str, Any]", record)
