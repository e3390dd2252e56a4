"""How records are cut into transactions: all of them, in order, bounded, and no key twice in one."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.catalog import load_topics
from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import IngressConfig, OutboxConfig, SecretRef, TenantConfig
from waybill.delivery.ordered import Letter
from waybill.infra.kafka import Record
from waybill.ingress.core.judging import Wanted, judge
from waybill.ingress.group import Judged, runs
from waybill.kernel.ids import Tenant
from waybill.submission.core.resubmission import KEPT

ACME = Tenant("acme")
SHOP = OutboxConfig(tenant=ACME, name="shop", dsn=SecretRef(env="X"), aggregate_types=("subject",))
TENANT = TenantConfig(name=ACME, outboxes=(SHOP,), ingress=IngressConfig(command_types=("subject.erase",)))


def judged(offset: int, name: str, data: bytes = b"1") -> Judged:
    said = {"specversion": "1.0", "id": name, "source": "/x", "type": "subject.erase", "subject": "subject/7"}
    headers = [(f"ce_{attribute}", text.encode()) for attribute, text in said.items()]
    record = Record(0, offset, None, list(headers), data)
    return record, judge(headers, data, TENANT, datetime(2026, 11, 30, tzinfo=UTC))


def letter(offset: int) -> Judged:
    return Record(0, offset, None, [], b"1"), Letter(code=ErrorCode.VALIDATION, cause="unreadable", detail="")


@given(names=st.lists(st.sampled_from(["a", "b", "c", None]), max_size=30))
def test_every_record_is_in_one_run_in_its_order_and_no_key_twice(names: list[str | None]):
    given_ = [judged(place, name) if name else letter(place) for place, name in enumerate(names)]

    cut = list(runs(given_))

    assert [each for run in cut for each in run] == given_
    for run in cut:
        keys = [found.key for _, found in run if isinstance(found, Wanted)]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("records", "sizes"),
    [
        ([], []),
        ([judged(n, f"e{n}") for n in range(500)], [500]),
        ([judged(n, f"e{n}") for n in range(501)], [500, 1]),
        ([judged(n, f"e{n}", b"1" * (1024 * 1024)) for n in range(5)], [4, 1]),
        ([judged(0, "a", b"1" * (5 * 1024 * 1024)), judged(1, "b")], [1, 1]),  # too large alone is a run of its own
    ],
    ids=["none", "full", "one more", "bytes", "large"],
)
def test_a_run_is_bounded(records: list[Judged], sizes: list[int]):
    assert [len(run) for run in runs(records)] == sizes


def test_events_are_remembered_longer_than_the_topic_keeps_them():
    (declared,) = (each for each in load_topics() if each.name == "ingress")

    assert declared.retention_ms is not None
    assert declared.retention_ms * 2 < KEPT.total_seconds() * 1000
