"""One command against the versions of its type."""

from dataclasses import replace

import pytest

from waybill.commandtypes import Checked, Given, KnownType, Objection, Refused, check_data, schema_uri
from waybill.commandtypes.core.versions import default_of, version_key
from waybill.contracts.fabric import Rendering, SchemaFormat

BASE = schema_uri("acme", "subject.erase")
KNOWN = KnownType(
    versions={"v2.0": '{"type": "array"}', "v1.10": '{"type": ["object", "null"]}', "v1.9": '{"type": "object"}'}
)
UNKNOWN, INVALID = Objection.UNKNOWN_VERSION, Objection.INVALID


@pytest.mark.parametrize(
    ("named", "content_type", "data", "expected"),
    [
        # whoever names none is held against the newest of the first major
        (None, "application/json", "null", BASE + "v1.10"),
        (None, "application/vnd.acme+json; charset=utf-8", "{}", BASE + "v1.10"),
        (None, "application/json", "[]", INVALID),
        (BASE + "v1.9", "application/json", "{}", BASE + "v1.9"),
        (BASE + "v1.9", "application/json", "null", INVALID),
        # another major is named
        (BASE + "v2.0", "application/json", "[]", BASE + "v2.0"),
        (BASE + "v3.0", "application/json", "{}", UNKNOWN),
        (BASE, "application/json", "{}", UNKNOWN),
        # a schema of the producer's own names no version
        ("https://acme.test/erase", "application/json", "[]", INVALID),
        ("https://acme.test/erase", "application/json", "{}", BASE + "v1.10"),
        (schema_uri("other", "subject.erase", "v9.0"), "application/json", "{}", BASE + "v1.10"),
        (None, "text/plain", "{}", INVALID),
    ],
)
def test_a_command_is_held_against_the_version_it_names(
    named: str | None, content_type: str, data: str, expected: str | Objection
):
    given = Given(named=named, content_type=content_type, data=data.encode())

    found = check_data("acme", "subject.erase", KNOWN, given)

    if isinstance(expected, str) and not isinstance(expected, Objection):
        assert found == Checked(data_schema=expected, content_type=content_type, data=data.encode())
    else:
        assert isinstance(found, Refused)
        assert found.objection == expected


def test_a_refusal_names_type_version_place_and_keyword():
    given = Given(named=None, content_type="application/json", data=b'"swordfish"')

    found = check_data("acme", "subject.erase", KNOWN, given)

    assert isinstance(found, Refused)
    assert found.message == "the data break the schema of subject.erase v1.10 at the top (type)"


def test_versions_are_ordered_by_their_numbers():
    assert sorted(["v2.0", "v1.10", "v1.9"], key=version_key) == ["v1.9", "v1.10", "v2.0"]
    assert default_of(["v2.3", "v3.0", "v2.10"]) == "v2.10"


@pytest.mark.parametrize("text", ["1.0", "v1", "v0.1", "v1.01", "v1.0.0", "V1.0", "v1.0 "])
def test_what_is_no_version_is_refused(text: str):
    with pytest.raises(ValueError, match=r"v<major>\.<minor>"):
        version_key(text)


V10 = '{"type": "record", "name": "Erase", "fields": [{"name": "id", "type": "long"}]}'
V11 = (
    '{"type": "record", "name": "Erase", "fields": [{"name": "id", "type": "long"}, '
    '{"name": "note", "type": ["null", "string"], "default": null}]}'
)
AVRO = KnownType(format=SchemaFormat.AVRO, versions={"v1.0": V10, "v1.1": V11})
AS_JSON = replace(AVRO, rendering=Rendering.JSON)
#: Of id 7, and of no note.
BINARY = b"\x0e\x00"


@pytest.mark.parametrize(
    ("known", "content_type", "data", "named", "expected"),
    [
        # a value, JSON and Avro are the same data; what goes is what the route wants
        (AVRO, "application/json", {"id": 7}, None, ("application/avro", BINARY)),
        (AVRO, "application/json", b'{"id": 7}', None, ("application/avro", BINARY)),
        (AVRO, "application/avro", BINARY, BASE + "v1.1", ("application/avro", BINARY)),
        (AVRO, "application/avro", b"\x0e", BASE + "v1.0", ("application/avro", b"\x0e")),
        (AS_JSON, "application/json", {"id": 7}, None, ("application/json", b'{"id":7,"note":null}')),
        (AS_JSON, "application/avro", BINARY, BASE + "v1.1", ("application/json", b'{"id":7,"note":null}')),
        # JSON that goes as JSON goes as it came
        (AS_JSON, "application/x+json", b'{"id": 7 }', None, ("application/x+json", b'{"id": 7 }')),
        # Avro is read with the version it was written with, and no other may be assumed
        (AVRO, "application/avro", BINARY, None, UNKNOWN),
        (AVRO, "application/avro", BINARY, "https://acme.test/mine", UNKNOWN),
        (AVRO, "application/avro", BINARY, BASE + "v1.0", INVALID),
        (AVRO, "application/avro", b"\x0e", BASE + "v1.1", INVALID),
        (AVRO, "application/json", {"id": "7"}, None, INVALID),
        (AVRO, "application/json", b'{"id": 7, "more": 1}', None, INVALID),
        (AVRO, "text/plain", b"7", None, INVALID),
    ],
)  # fmt: skip
def test_avro_data_go_in_the_form_their_route_wants(
    known: KnownType, content_type: str, data: object, named: str | None, expected: object
):
    found = check_data("acme", "subject.erase", known, Given(named=named, content_type=content_type, data=data))

    assert (found.objection if isinstance(found, Refused) else (found.content_type, found.data)) == expected
