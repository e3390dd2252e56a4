"""The quick reader of JSON agrees with the standard one on everything."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from waybill.contracts.json_text import read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def outcome(read: Any, raw: bytes) -> Any:
    try:
        return read(raw)
    except (ValueError, RecursionError) as error:
        return type(error)


@given(st.binary(max_size=40))
@example(b"")
@example(b" 1")
@example(b"1 ")
@example(b"1 2")
@example(b"NaN")
@example(b'{"a":1}\n')
@example(b"\xef\xbb\xbf1")
@example("1".encode("utf-16"))
@example(b"[" * 100_000)
def test_any_bytes_are_read_or_refused_alike(raw: bytes) -> None:
    assert repr(outcome(read_json, raw)) == repr(outcome(json.loads, raw))


@given(VALUES, st.booleans(), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_any_value_is_read_alike(value: Any, ascii_only: bool, encoding: str) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode(encoding, "surrogatepass")

    assert outcome(read_json, raw) == outcome(json.loads, raw)
