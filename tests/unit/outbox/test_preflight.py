"""What the check concludes: a table of single faults, each with its severity and a word of advice."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from waybill.outbox.core.preflight import Facts, RoleFacts, Severity, judge

GOOD = Facts(
    schema="waybill", server_version_num=180_006, encoding="UTF8", wal_level="logical", slots_free=9, senders_free=9,
    max_slot_wal_keep_size_mb=10_240, idle_in_transaction_timeout_ms=60_000, oldest_transaction_s=1.0, pooled=False,
    skew_s=0.01, skew_error_s=0.001, migrations_applied=5, migrations_known=5,
    app=RoleFacts(name="waybill_app", may_emit=True),
    relay=RoleFacts(name="waybill_relay", replication=True, may_read=True),
    today=date(2026, 1, 1), days_missing=(), default_rows=False, publication="insert via root of waybill.outbox",
)  # fmt: skip

FAULTS: dict[str, tuple[dict[str, Any], str, Severity]] = {
    "PostgreSQL 13": ({"server_version_num": 130_001}, "server version", Severity.FAIL),
    "LATIN1": ({"encoding": "LATIN1"}, "encoding", Severity.FAIL),
    "wal_level replica": ({"wal_level": "replica"}, "wal_level", Severity.FAIL),
    "no slot free": ({"slots_free": 0}, "replication slots free", Severity.FAIL),
    "no sender free": ({"senders_free": 0}, "WAL senders free", Severity.FAIL),
    "no limit of kept WAL": ({"max_slot_wal_keep_size_mb": -1}, "max_slot_wal_keep_size", Severity.WARN),
    "no idle limit": ({"idle_in_transaction_timeout_ms": 0}, "idle_in_transaction_session_timeout", Severity.WARN),
    "a long idle limit": ({"idle_in_transaction_timeout_ms": 3_600_000}, "idle_in_transaction_session_timeout", Severity.WARN),
    "an old transaction": ({"oldest_transaction_s": 7200.0}, "oldest transaction", Severity.WARN),
    "a pooler": ({"pooled": True}, "pooler", Severity.WARN),
    "a clock ahead": ({"skew_s": 3.0}, "clock", Severity.FAIL),
    "a clock behind": ({"skew_s": -3.0}, "clock", Severity.FAIL),
    "a migration missing": ({"migrations_applied": 4}, "schema", Severity.FAIL),
    "nothing for today": ({"days_missing": (date(2026, 1, 1),)}, "partitions", Severity.FAIL),
    "nothing for tomorrow": ({"days_missing": (date(2026, 1, 2), date(2026, 1, 3))}, "partitions", Severity.FAIL),
    "nothing for the day after": ({"days_missing": (date(2026, 1, 3),)}, "partitions", Severity.WARN),
    "rows in the default": ({"default_rows": True}, "default partition", Severity.FAIL),
    "no publication": ({"publication": None}, "publication", Severity.FAIL),
    "updates published": ({"publication": "insert, update via root of waybill.outbox"}, "publication", Severity.FAIL),
    "partitions published": ({"publication": "insert of waybill.outbox"}, "publication", Severity.FAIL),
    "no application role": ({"app": RoleFacts(name="a", exists=False)}, "application role", Severity.FAIL),
    "application owns": ({"app": RoleFacts(name="a", is_owner=True, may_emit=True)}, "application role", Severity.FAIL),
    "application inserts": (
        {"app": RoleFacts(name="a", may_emit=True, excess=("INSERT on outbox",))}, "application role", Severity.FAIL),
    "application cannot emit": ({"app": RoleFacts(name="a")}, "application may emit", Severity.FAIL),
    "no relay role": ({"relay": RoleFacts(name="r", exists=False)}, "relay role", Severity.FAIL),
    "relay cannot log in": (
        {"relay": RoleFacts(name="r", login=False, replication=True, may_read=True)}, "relay role", Severity.FAIL),
    "relay cannot replicate": ({"relay": RoleFacts(name="r", may_read=True)}, "relay role", Severity.FAIL),
    "relay cannot read": ({"relay": RoleFacts(name="r", replication=True)}, "relay may read", Severity.FAIL),
    "relay writes": (
        {"relay": RoleFacts(name="r", replication=True, may_read=True, excess=("DELETE on outbox",))},
        "relay reads only", Severity.FAIL),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "check", "severity"), FAULTS.values(), ids=FAULTS)
def test_one_fault_is_one_finding_with_advice(changes: dict[str, Any], check: str, severity: Severity):
    findings = judge(replace(GOOD, **changes))

    bad = [finding for finding in findings if finding.severity is not Severity.OK]
    assert [(finding.check, finding.severity) for finding in bad] == [(check, severity)]
    assert bad[0].advice


def test_a_good_database_has_nothing_to_do():
    findings = judge(GOOD)

    assert {finding.severity for finding in findings} == {Severity.OK}
    assert [finding.advice for finding in findings] == [""] * len(findings)


def test_skew_within_the_round_trip_is_no_skew():
    assert {finding.severity for finding in judge(replace(GOOD, skew_s=3.0, skew_error_s=1.5))} == {Severity.OK}


def test_without_a_schema_only_the_server_is_judged():
    checks = [finding.check for finding in judge(replace(GOOD, migrations_applied=0))]

    assert checks[-1] == "schema"
    assert "publication" not in checks
