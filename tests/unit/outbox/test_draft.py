"""How a draft becomes what `emit_many` takes, and how its answer is read."""

import base64
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.command import DataForm
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import CommandId, delivery_id
from waybill.outbox.core.draft import CommandDraft, emitted, encode_commands, encode_data

PLAIN = CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={"id": 7})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def encoded(draft: CommandDraft) -> dict[str, object]:
    commands = json.loads(encode_commands([draft], [encode_data(draft)]))
    assert len(commands) == 1
    found: dict[str, object] = commands[0]
    return found


@given(data=JSON)
def test_any_json_value_reads_back_as_itself(data: object):
    surrogates = "\\ud" in json.dumps(data)  # half a surrogate pair is no text and has no UTF-8
    if surrogates:
        return

    assert json.loads(encode_data(replace(PLAIN, data=data))) == data


@given(data=st.binary())
def test_bytes_are_not_touched(data: bytes):
    assert encode_data(replace(PLAIN, data=data)) == data
    assert base64.b64decode(str(encoded(replace(PLAIN, data=data))["data_base64"])) == data


def test_a_text_is_a_json_string_not_json():
    assert encode_data(replace(PLAIN, data='{"a": 1}')) == b'"{\\"a\\": 1}"'


@pytest.mark.parametrize("data", [{1, 2}, Decimal("1.10"), object(), float("nan"), {("a",): 1}, "\ud800"])
def test_data_without_a_json_form_are_refused_without_showing_them(data: object):
    with pytest.raises(ConfigError) as caught:
        encode_data(replace(PLAIN, data=data))

    assert type(data).__name__ in str(caught.value)
    assert "1.10" not in str(caught.value)


def test_the_data_are_not_in_the_drafts_repr():
    assert "secret" not in repr(replace(PLAIN, data={"secret": 1}))


def test_what_is_not_set_is_not_sent():
    assert encoded(PLAIN) == {
        "aggregate_type": "subject",
        "aggregate_id": "7",
        "command_type": "subject.erase",
        "content_type": "application/json",
        "instruction_version": 1,
        "data_form": "clear",
        "data_base64": "eyJpZCI6N30=",
    }


def test_everything_that_is_set_is_sent():
    replaced = CommandId(uuid.UUID(int=1))
    draft = replace(
        PLAIN, destinations=("crm",), optional=("crm",), ttl=timedelta(minutes=1), operation_id="o", request_id="r",
        request_size=2, instruction_version=2, replaces=replaced, data_schema="s:x", capability="c", capability_version=3,
        legal_versions="1..", config_versions="..2", traceparent="t",
    )  # fmt: skip

    sent = encoded(draft)

    assert sent["destinations"] == sent["optional"] == ["crm"]
    assert (sent["ttl_s"], sent["replaces"]) == (60.0, str(replaced))
    for name in ("operation_id", "request_id", "request_size", "instruction_version", "data_schema", "capability",
                 "capability_version", "legal_versions", "config_versions", "traceparent"):  # fmt: skip
        assert sent[name] == getattr(draft, name)


@pytest.mark.parametrize(
    ("draft", "form"),
    [
        (PLAIN, DataForm.CLEAR),
        (replace(PLAIN, data_key_id="k"), DataForm.SEALED),
        (replace(PLAIN, data_ref="s:x"), DataForm.REFERENCE),
        (replace(PLAIN, data_digest="d"), DataForm.REFERENCE),  # incomplete, and the database says so
    ],
)
def test_the_form_follows_from_what_is_set(draft: CommandDraft, form: DataForm):
    assert draft.form is form


@pytest.mark.parametrize("sequences", [{"crm": 3}, '{"crm": 3}'], ids=["driver reads JSON", "driver leaves text"])
@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.requirement("DC-6")
def test_an_answer_is_read_whatever_the_driver_makes_of_it(sequences: object, as_text: bool):
    command, now = uuid.UUID(int=5), datetime(2026, 1, 1, tzinfo=UTC)

    read = emitted((1, str(command) if as_text else command, "subject/7", sequences, now, now))

    assert (read.command_id, read.sequences) == (command, {"crm": 3})
    assert read.delivery_ids == {"crm": delivery_id(read.command_id, next(iter(read.sequences)))}
