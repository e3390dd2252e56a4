"""One command against the versions of its type."""

import pytest

from waybill.commandtypes import KnownVersion, Objection, Refused, check_data, schema_uri
from waybill.commandtypes.core.versions import default_of, version_key

BASE = schema_uri("acme", "subject.erase")
KNOWN = [
    KnownVersion(version="v2.0", schema='{"type": "array"}'),
    KnownVersion(version="v1.10", schema='{"type": ["object", "null"]}'),
    KnownVersion(version="v1.9", schema='{"type": "object"}'),
]
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
    found = check_data(BASE, KNOWN, named=named, content_type=content_type, data=data.encode())

    assert (found.objection if isinstance(found, Refused) else found) == expected


def test_a_refusal_names_type_version_place_and_keyword():
    found = check_data(BASE, KNOWN, named=None, content_type="application/json", data=b'"swordfish"')

    assert isinstance(found, Refused)
    assert found.message == "the data break the schema of subject.erase v1.10 at the top (type)"


def test_versions_are_ordered_by_their_numbers():
    assert sorted(["v2.0", "v1.10", "v1.9"], key=version_key) == ["v1.9", "v1.10", "v2.0"]
    assert default_of(["v2.3", "v3.0", "v2.10"]) == "v2.10"


@pytest.mark.parametrize("text", ["1.0", "v1", "v0.1", "v1.01", "v1.0.0", "V1.0", "v1.0 "])
def test_what_is_no_version_is_refused(text: str):
    with pytest.raises(ValueError, match=r"v<major>\.<minor>"):
        version_key(text)
