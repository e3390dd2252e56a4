"""Avro as the catalogue takes it: one record in one document, its data as plain Avro binary or as plain JSON.

The two forms of the same data are converted into each other by the schema. In JSON a record is an object with every
field, `bytes` and `fixed` are base64, an enum its symbol, a union the value of its branch and nothing around it;
numbers that have a logical type are the numbers Avro stores. A union is read back as its first branch that takes the
value. What has no JSON form, which is NaN and the infinities, is refused.

What is wrong is told as for JSON Schema: by the place, spelled with names of the schema, and by the type that was
expected there; never by the data.
"""

import base64
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import fastavro
from fastavro.validation import validate

from waybill.commandtypes.core.json_schema import Fault, pointer, read_strict

__all__ = ["AvroSchema", "MismatchError", "decode", "encode", "from_json", "read_avro", "schema_fault", "to_json"]

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_WHOLE: Final = {"int": 2**31, "long": 2**63}

#: Of what has a fraction.
_LARGEST: Final = sys.float_info.max

_Path = tuple[str | int, ...]


class MismatchError(ValueError):
    """Data are not what the schema says; `fault` tells where and what was expected."""

    def __init__(self, path: _Path, expected: str) -> None:
        self.fault = Fault(pointer(path), expected)
        super().__init__(str(self.fault))


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that was read, with the types it names."""

    root: Any
    names: Mapping[str, Any]

    def resolve(self, schema: Any) -> Any:
        """Return what a name stands for; a primitive as `{"type": …}`."""
        if isinstance(schema, str):
            return {"type": schema} if schema in PRIMITIVES else self.names[schema]
        inner = schema.get("type") if isinstance(schema, dict) else None
        return self.resolve(inner) if isinstance(inner, dict | list) or inner in self.names else schema


@lru_cache(maxsize=256)
def read_avro(text: str) -> AvroSchema:
    """Read the text of a schema without faults."""
    names: dict[str, Any] = {}
    root = fastavro.parse_schema(json.loads(text), named_schemas=names)
    return AvroSchema(root, names)


def schema_fault(text: str) -> Fault | None:
    """Say what keeps a text from being a schema of the catalogue, or None."""
    try:
        schema = read_strict(text)
        fastavro.parse_schema(schema)
    except Exception as error:  # fastavro raises many kinds for a schema it cannot read
        return Fault("", "json" if isinstance(error, ValueError) else type(error).__name__)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return Fault("/type", "one record")
    return None


def encode(text: str, datum: Any) -> bytes:
    """Write a Python value as plain Avro binary.

    Raises:
        MismatchError: it is not what the schema says.
    """
    schema = read_avro(text)
    whole = _complete(schema, schema.root, datum, ())
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, schema.root, whole)
    except Exception as error:  # fastavro raises whatever its writing ran into, such as a decimal that is too precise
        raise MismatchError((), "avro") from error
    return out.getvalue()


def decode(text: str, data: bytes) -> Any:
    """Read plain Avro binary, all of it; logical types are not interpreted.

    Raises:
        MismatchError: it is not exactly one value of the schema.
    """
    source = io.BytesIO(data)
    try:
        datum = fastavro.schemaless_reader(source, _bare(text), None)
    except Exception as error:  # fastavro raises whatever its reading ran into
        raise MismatchError((), "avro") from error
    if source.tell() != len(data):
        raise MismatchError((), "avro")
    return datum


@lru_cache(maxsize=256)
def _bare(text: str) -> Any:
    return fastavro.parse_schema(_without_logical(json.loads(text)))


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key in {"default", "symbols", "aliases"} else _without_logical(value)
        for key, value in schema.items()
        if key != "logicalType"
    }


def to_json(text: str, data: bytes) -> bytes:
    """Render plain Avro binary as JSON; the same data always give the same bytes.

    Raises:
        MismatchError: it is not one value of the schema, or has no JSON form.
    """
    schema = read_avro(text)
    document = _plain(schema, schema.root, decode(text, data), ())
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def from_json(text: str, data: bytes | str) -> Any:
    """Read JSON as `to_json` renders it; a field that is missing has its default.

    Raises:
        MismatchError: it is not what the schema says.
    """
    schema = read_avro(text)
    try:
        document = read_strict(data)
    except (ValueError, RecursionError) as error:
        raise MismatchError((), "json") from error
    return _datum(schema, schema.root, document, ())


def _complete(schema: AvroSchema, part: Any, datum: Any, path: _Path) -> Any:
    """Return a value that is what the schema says, with the defaults of what it leaves out."""
    found = schema.resolve(part)
    if isinstance(found, list):
        for branch in found:
            try:
                return _complete(schema, branch, datum, path)
            except MismatchError:
                continue
        raise MismatchError(path, "union")
    match found["type"]:
        case "record" if isinstance(datum, Mapping):
            _no_others(found, datum, path)
            return {field["name"]: _field(schema, field, datum, path) for field in found["fields"]}
        case "array" if isinstance(datum, list | tuple):
            return [_complete(schema, found["items"], item, (*path, number)) for number, item in enumerate(datum)]
        case "map" if isinstance(datum, Mapping) and all(isinstance(key, str) for key in datum):
            return {key: _complete(schema, found["values"], value, (*path, "*")) for key, value in datum.items()}
        case kind:
            if kind in {"record", "array", "map"} or not validate(datum, found, raise_errors=False):
                raise MismatchError(path, kind)
            return datum


def _field(schema: AvroSchema, field: Any, datum: Mapping[Any, Any], path: _Path) -> Any:
    here = (*path, field["name"])
    if field["name"] in datum:
        return _complete(schema, field["type"], datum[field["name"]], here)
    if "default" not in field:
        raise MismatchError(here, "required")
    return _complete(schema, field["type"], _default(schema, field["type"], field["default"]), here)


def _default(schema: AvroSchema, part: Any, value: Any) -> Any:
    """Return a default as a value: in a schema, bytes are written as characters and a union's is its first branch's."""
    found = schema.resolve(part)
    if isinstance(found, list):
        return _default(schema, found[0], value)
    match found["type"]:
        case "bytes" | "fixed":
            return value.encode("latin-1")
        case "array":
            return [_default(schema, found["items"], item) for item in value]
        case "map":
            return {key: _default(schema, found["values"], inner) for key, inner in value.items()}
        case "record":
            kinds = {field["name"]: field["type"] for field in found["fields"]}
            return {name: _default(schema, kinds[name], inner) for name, inner in value.items()}
        case _:
            return value


def _fits(schema: AvroSchema, part: Any, datum: Any) -> bool:
    try:
        _complete(schema, part, datum, ())
    except MismatchError:
        return False
    return True


def _no_others(record: Any, found: Mapping[Any, Any], path: _Path) -> None:
    if found.keys() - {field["name"] for field in record["fields"]}:
        raise MismatchError(path, "no other fields")


def _plain(schema: AvroSchema, part: Any, datum: Any, path: _Path) -> Any:
    found = schema.resolve(part)
    if isinstance(found, list):
        return _plain(schema, _branch(schema, found, datum), datum, path)
    match found["type"]:
        case "record":
            return {
                field["name"]: _plain(schema, field["type"], datum[field["name"]], (*path, field["name"]))
                for field in found["fields"]
            }
        case "array":
            return [_plain(schema, found["items"], item, (*path, number)) for number, item in enumerate(datum)]
        case "map":
            return {key: _plain(schema, found["values"], value, (*path, "*")) for key, value in datum.items()}
        case "bytes" | "fixed":
            return base64.b64encode(datum).decode("ascii")
        case "float" | "double" if not math.isfinite(datum):
            raise MismatchError(path, "a finite number")
        case _:
            return datum


def _branch(schema: AvroSchema, union: list[Any], datum: Any) -> Any:
    """Return the first branch that a value which was read fits."""
    return next(branch for branch in union if _fits(schema, branch, datum))


def _datum(schema: AvroSchema, part: Any, value: Any, path: _Path) -> Any:
    found = schema.resolve(part)
    if isinstance(found, list):
        return _of_union(schema, found, value, path)
    match found["type"]:
        case "record" if isinstance(value, dict):
            _no_others(found, value, path)
            return dict(_fields(schema, found, value, path))
        case "array" if isinstance(value, list):
            return [_datum(schema, found["items"], item, (*path, number)) for number, item in enumerate(value)]
        case "map" if isinstance(value, dict):
            return {key: _datum(schema, found["values"], inner, (*path, "*")) for key, inner in value.items()}
        case kind:
            return _scalar(kind, found, value, path)


def _fields(schema: AvroSchema, record: Any, value: Mapping[str, Any], path: _Path) -> Iterator[tuple[str, Any]]:
    for field in record["fields"]:
        name = field["name"]
        if name in value:
            yield name, _datum(schema, field["type"], value[name], (*path, name))
        elif "default" not in field:
            raise MismatchError((*path, name), "required")


def _of_union(schema: AvroSchema, union: list[Any], value: Any, path: _Path) -> Any:
    for branch in union:
        try:
            return _datum(schema, branch, value, path)
        except MismatchError:
            continue
    raise MismatchError(path, "union")


def _scalar(kind: str, schema: Any, value: Any, path: _Path) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in _WHOLE and is_number and value == value // 1 and -_WHOLE[kind] <= value < _WHOLE[kind]:
        return int(value)
    if kind in {"float", "double"} and is_number and abs(value) <= _LARGEST:
        return float(value)
    if kind in {"bytes", "fixed"} and isinstance(value, str):
        return _unpacked(kind, schema, value, path)
    is_plain = (
        (kind == "null" and value is None)
        or (kind == "boolean" and isinstance(value, bool))
        or (kind == "string" and isinstance(value, str))
        or (kind == "enum" and isinstance(value, str) and value in schema["symbols"])
    )
    if not is_plain:
        raise MismatchError(path, kind)
    return value


def _unpacked(kind: str, schema: Any, value: str, path: _Path) -> bytes:
    try:
        data = base64.b64decode(value, validate=True)
    except ValueError as error:
        raise MismatchError(path, kind) from error
    if kind == "fixed" and len(data) != schema["size"]:
        raise MismatchError(path, kind)
    return data
