"""Producers killed around their commits: a business row and its commands are both there, or neither."""

import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.fix_outbox import OutboxDatabase

from waybill.testing.waiting import eventually

pytestmark = pytest.mark.postgres

KILLABLE = Path(__file__).with_name("killable.py")
KILLS = 1000
PROGRAMS = 4


@pytest.mark.requirement("DC-4")
def test_a_thousand_kills_around_commit_leave_business_rows_and_commands_equal(outbox: OutboxDatabase):
    outbox.rows("CREATE TABLE business (id uuid PRIMARY KEY, tenant text NOT NULL)")
    outbox.rows("GRANT INSERT ON business TO waybill_app")

    programs = [
        subprocess.Popen(
            [sys.executable, str(KILLABLE), f"{outbox.dsn('waybill_app')}?options=-csynchronous_commit%3Doff",
             outbox.dsn(), outbox.tenant, str(KILLS // PROGRAMS), str(seed)],
            stdout=subprocess.PIPE, text=True,
        )
        for seed in range(PROGRAMS)
    ]  # fmt: skip
    acknowledged = sum(int(program.communicate(timeout=280)[0]) for program in programs)
    assert [program.returncode for program in programs] == [0] * PROGRAMS
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'waybill_app'"
    eventually(lambda: outbox.rows(sessions) == [(0,)], within_s=20)

    business = {str(row) for (row,) in outbox.rows("SELECT id FROM business WHERE tenant = %s", outbox.tenant)}
    issued = outbox.rows(
        "SELECT request_id, (sequences ->> 'crm')::int FROM waybill.outbox WHERE tenant = %s ORDER BY position",
        outbox.tenant,
    )
    requests = [request for request, _ in issued]
    assert set(requests) == business
    assert len(requests) == 2 * len(business)
    assert [number for _, number in issued] == list(range(1, len(issued) + 1))
    assert len(business) >= acknowledged > 0
