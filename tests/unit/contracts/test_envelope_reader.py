"""What the strict reader refuses: everything that two readers could understand differently."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.command import Command, DataForm
from waybill.contracts.envelope import render
from waybill.contracts.envelope_reader import parse
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import DestinationName

MakeCommand = Callable[..., Command]
CRM = DestinationName("crm")


def changed(body: bytes, old: bytes, new: bytes) -> bytes:
    assert body.count(old) == 1, old
    return body.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b'"tenant":"acme"', b'"tenant":"acme","tenant":"other"', id="an attribute twice"),
        pytest.param(b'"tenant":"acme"', b'"tenant":"acme","tenan\\u0074":"other"', id="twice, once escaped"),
        pytest.param(b'"tenant":"acme"', b'"tenant":"acme","extra":1', id="an unknown attribute"),
        pytest.param(b'"tenant":"acme",', b"", id="an attribute missing"),
        pytest.param(b'"tenant":"acme"', b'"tenant":null', id="null"),
        pytest.param(b'"tenant":"acme"', b'"tenant":["acme"]', id="a list"),
        pytest.param(b'"aggregatesequence":1', b'"aggregatesequence":1.0', id="a fraction"),
        pytest.param(b'"aggregatesequence":1', b'"aggregatesequence":true', id="a boolean for a number"),
        pytest.param(b'"aggregatesequence":1', b'"aggregatesequence":"1"', id="text for a number"),
        pytest.param(b'"aggregatesequence":1', b'"aggregatesequence":0', id="sequence 0"),
        pytest.param(b'"aggregatesequence":1', b'"aggregatesequence":2147483648', id="beyond 32 bits"),
        pytest.param(b'"required":true', b'"required":1', id="a number for a boolean"),
        pytest.param(b'"specversion":"1.0"', b'"specversion":"1.1"', id="another CloudEvents"),
        pytest.param(b'"envelopeversion":1', b'"envelopeversion":2', id="another envelope version"),
        pytest.param(b'"envelopeversion":1', b'"envelopeversion":true', id="a version that equals 1"),
        pytest.param(b'"expiresat":"2026-01-08T00:00:00.000Z"', b'"expiresat":"2026-01-08T00:00:00"', id="no zone"),
        pytest.param(b'"dataform":"clear"', b'"dataform":"sealed"', id="clear data called sealed"),
        pytest.param(b'"dataform":"clear"', b'"dataform":"reference"', id="data beside a reference"),
        pytest.param(b'"dataform":"clear"', b'"dataform":"open"', id="an unknown form"),
        pytest.param(b"application/json", b"application/avro", id="JSON data called something else"),
        pytest.param(b',"data":', b',"data_base64":"e30=","data":', id="data twice"),
        pytest.param(b',"data":', b',"date":', id="no data"),
        pytest.param(b'"8f14e45f"}}', b'"8f14e45f"},"tenant":"other"}', id="an attribute behind the data"),
        pytest.param(b'"8f14e45f"}}', b'"8f14e45f"}} ', id="something behind the end"),
        pytest.param(b'"8f14e45f"}}', b'"8f14e45f"}', id="an end missing"),
        pytest.param(b'"8f14e45f"}}', b'"8f14e45f",}}', id="data that are not JSON"),
        pytest.param(b'"type":"subject.erase"', b'"type":"waybill.gap-resolution"', id="a command called a resolution"),
    ],
)
def test_a_body_that_is_not_exactly_an_envelope_is_refused(make_command: MakeCommand, old: bytes, new: bytes) -> None:
    body = render(make_command(), CRM)

    with pytest.raises(ContractError) as refused:
        parse(changed(body, old, new))

    assert "acme" not in str(refused.value)
    assert "8f14e45f" not in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"1", b"{}", b"\xff", b'{"a":', b"[" * 50_000])
def test_a_body_that_is_no_envelope_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(ContractError):
        parse(body)


def test_base64_that_is_not_base64_is_refused(make_command: MakeCommand) -> None:
    body = render(make_command(data_form=DataForm.SEALED, data=b"abc"), CRM)

    with pytest.raises(ContractError, match="base64"):
        parse(changed(body, b'"YWJj"', b'"YW!j"'))
    with pytest.raises(ContractError, match="last"):
        parse(changed(body, b'"data_base64":"YWJj"', b'"data_base64":"YWJj","tenant2":"x"'))


def test_a_uuid_has_one_spelling(make_command: MakeCommand) -> None:
    command = make_command()
    body = render(command, CRM)
    spelt = str(command.command_id).encode()

    with pytest.raises(ContractError, match="commandid"):
        parse(changed(body, spelt, spelt.upper().replace(b"-", b"")))


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(body: bytes) -> None:
    with pytest.raises(ContractError):
        parse(body)


@pytest.mark.parametrize(
    "entries",
    [
        b"[]",
        b'[{"sequence":2,"delivery_id":"00000000-0000-0000-0000-000000000002","resolution":"maybe"}]',
        b'[{"sequence":true,"delivery_id":"00000000-0000-0000-0000-000000000002","resolution":"final"}]',
        b'[{"sequence":2,"delivery_id":"2","resolution":"final"}]',
        b'[{"sequence":2,"resolution":"final"}]',
        b'[{"sequence":2,"delivery_id":"00000000-0000-0000-0000-000000000002","resolution":"final","x":1}]',
        b'[{"sequence":2,"sequence":3,"delivery_id":"00000000-0000-0000-0000-000000000002","resolution":"final"}]',
        b"7",
    ],
)
def test_a_damaged_gap_resolution_is_refused(entries: bytes) -> None:
    body = (
        b'{"specversion":"1.0","id":"00000000-0000-0000-0000-000000000001","source":"s","type":"waybill.gap-resolution"'
        b',"subject":"a/b","time":"2026-01-01T00:00:00.000Z","datacontenttype":"application/json","tenant":"acme"'
        b',"destination":"crm","configversion":1,"envelopeversion":1,"dataform":"clear","data":{"resolved":%b}}'
    )
    good = b'[{"sequence":2,"delivery_id":"00000000-0000-0000-0000-000000000002","resolution":"final"}]'
    parse(body % good)

    with pytest.raises(ContractError):
        parse(body % entries)
