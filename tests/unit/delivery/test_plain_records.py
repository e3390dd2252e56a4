"""What the intake passes over quickly is what it would have found nothing wrong with."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.contracts.fabric import DestinationConfig, FabricConfig, TenantConfig
from waybill.delivery.intake import is_plain, judge, needed_version
from waybill.infra.kafka import RawHeaders, Record
from waybill.kernel.ids import DestinationName, Tenant

ACME = Tenant("acme")
NAMES = ("crm", "dwh")
CONFIG = FabricConfig(
    version=3,
    tenants=(
        TenantConfig(
            name=ACME,
            partitions=3,
            destinations=tuple(
                DestinationConfig(tenant=ACME, name=DestinationName(name), url="http://x", owner="team")
                for name in NAMES
            ),
        ),
    ),
)

sequences = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.dictionaries(st.sampled_from(("crm", "dwh", "gone")), st.integers(0, 3)).map(lambda m: json.dumps(m).encode()),
)
versions = st.sampled_from([None, b"2", b"3", b"4", b"-1", b"x"])
keys = st.sampled_from([None, b"subject/1", b"subject", b"\xff/1"])


@pytest.mark.requirement("DC-22")
@given(sequences, versions, keys)
def test_a_plain_record_needs_no_letter_and_no_newer_configuration(
    named: bytes | None, version: bytes | None, key: bytes | None
) -> None:
    headers: RawHeaders = [("ce_configversion", version), ("ce_sequences", named)]
    record = Record(0, 7, key, headers, b"{}")

    if is_plain(record, NAMES, CONFIG.version):
        assert needed_version(record) <= CONFIG.version
        assert judge(record, CONFIG, ACME) == []


def test_an_ordinary_record_is_plain() -> None:
    headers: RawHeaders = [("ce_configversion", b"3"), ("ce_sequences", b'{"crm":5}')]

    assert is_plain(Record(0, 7, b"subject/1", headers, b"{}"), NAMES, CONFIG.version)
