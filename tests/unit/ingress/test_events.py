"""A record as an event: both modes read alike, the data stay as they came, what is no event says why and no more."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.delivery.ordered import Letter
from waybill.ingress.core.events import Event, read_event

ATTRIBUTES = {"specversion": "1.0", "id": "e-1", "source": "/erp", "type": "subject.erase", "subject": "subject/7"}
STRUCTURED = ("content-type", b"application/cloudevents+json; charset=utf-8")


def binary(data: bytes | None, **changes: str | None) -> Event | Letter:
    wanted = {**{f"ce_{name}": text for name, text in ATTRIBUTES.items()}, "content-type": "application/json"}
    headers = {**wanted, **{name.replace("content_type", "content-type"): text for name, text in changes.items()}}
    return read_event([(name, text.encode()) for name, text in headers.items() if text is not None], data)


def structured(text: str) -> Event | Letter:
    return read_event([STRUCTURED], text.encode())


def document(data: str, **more: object) -> str:
    rest = json.dumps({**ATTRIBUTES, **more})[1:]
    return f'{{"data":{data},{rest}'


def event(found: Event | Letter) -> Event:
    assert isinstance(found, Event), found
    return found


@pytest.mark.parametrize("text", ["1.10", '{"a":1,"a":2}', '"\\u0041 😀 \u2028"', "[ 1 , 2 ]", "1" * 400, "null"])
def test_both_modes_read_the_same_event_with_the_data_as_they_came(text: str):
    one, other = event(binary(text.encode())), event(structured(document(text, datacontenttype="application/json")))

    assert (one, one.digest) == (other, other.digest)
    assert one.data == text.encode()


@given(data=st.binary(min_size=1))
def test_bytes_come_through_in_both_modes(data: bytes):
    encoded = b64encode(data).decode()
    whole = json.dumps({**ATTRIBUTES, "data_base64": encoded, "datacontenttype": "avro/binary"})

    one, other = event(binary(data, content_type="avro/binary")), event(structured(whole))

    assert one.data == other.data == data
    assert one.digest == other.digest


def test_text_that_is_not_json_is_a_json_string_in_a_document():
    assert event(structured(document('"a\\nb"', datacontenttype="text/plain"))).data == b"a\nb"


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"ce_time": "2026-11-30T12:00:00Z"}, True),  # when it was sent
        ({"ce_traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}, True),  # in which trace
        ({"ce_partitionkey": "7"}, True),
        ({"content_type": None}, True),  # JSON is what is left out
        ({"ce_type": "subject.hold"}, False),
        ({"ce_subject": "subject/8"}, False),
        ({"ce_expiresat": "2027-01-01T00:00:00Z"}, False),
        ({"ce_ttl": "1h"}, False),
        ({"content_type": "text/plain"}, False),
    ],
)
def test_what_is_ordered_tells_two_events_apart_and_nothing_else(changes: dict[str, str | None], is_same: bool):
    assert (event(binary(b"1", **changes)).digest == event(binary(b"1")).digest) is is_same


def test_other_data_are_another_event_and_none_are_not_empty_ones():
    digests = {event(binary(data)).digest for data in (b"1", b"1.0", b"", None, b" 1")}

    assert len(digests) == 4, "an empty value is none"


def test_source_and_id_make_one_key():
    assert event(binary(b"1", ce_source="/a", ce_id="b c")).key != event(binary(b"1", ce_source="/a", ce_id="b")).key


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (binary(b"1", ce_specversion=None), "specversion"),
        (binary(b"1", ce_specversion="0.3"), "specversion"),
        (binary(b"1", ce_id=None), "id"),
        (binary(b"1", ce_id="a\x00b"), "id"),
        (binary(b"1", ce_id="x" * 256), "id"),
        (binary(b"1", ce_source="with space"), "source"),
        (binary(b"1", ce_source=""), "source"),
        (binary(b"1", ce_datacontenttype="text/plain"), "content-type"),
        (binary(b"1", content_type="application/cloudevents+avro"), "content-type"),
        (binary(b"1", content_type="application/cloudevents-batch+json"), "content-type"),
        (read_event([("ce_id", b"\xff")], b"1"), "UTF-8"),
        (read_event([("ce_id", b"a"), ("ce_id", b"a")], b"1"), "twice"),
        (structured("[1]"), "JSON object"),
        (structured("{"), "JSON object"),
        (structured('{"id":1,"id":1}'), "JSON object"),
        (structured("[" * 100_000), "JSON object"),
        (read_event([STRUCTURED], b"\xff"), "JSON object"),
        (read_event([STRUCTURED], None), "JSON object"),
        (structured(document("1", data_base64="MQ==")), "data_base64"),
        (structured(json.dumps({**ATTRIBUTES, "data_base64": "*"})), "data_base64"),
        (structured(json.dumps({**ATTRIBUTES, "data_base64": 7})), "data_base64"),
        (structured(document("1", datacontenttype="text/plain")), "JSON string"),
        (structured(document('"\\ud800"', datacontenttype="text/plain")), "JSON string"),
        (structured(document("1", ttl=["1h"])), "neither text"),
        (structured(document("1", ttl=True)), "neither text"),
        (structured(document("1", id="\ud800")), "id"),
    ],
)
def test_what_is_no_event_says_what_is_wrong_with_it(found: Event | Letter, names: str):
    assert isinstance(found, Letter), found
    assert found.cause == "unreadable"
    assert names in found.detail


@given(headers=st.lists(st.tuples(st.sampled_from(["ce_id", "ce_source", "content-type", "x"]), st.none() | st.binary())),
       value=st.none() | st.binary())  # fmt: skip
def test_no_record_whatever_raises(headers: list[tuple[str, bytes | None]], value: bytes | None):
    assert isinstance(read_event(headers, value), Event | Letter)
