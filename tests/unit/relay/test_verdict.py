"""What the facts about a pipe mean; above all, that RUNNING is not believed."""

from dataclasses import replace

import pytest

from waybill.relay.core.facts import PipeFacts, SlotFacts, TaskFacts, parse_lsn
from waybill.relay.core.verdict import Health, judge

SLOT = SlotFacts(
    name="waybill_acme",
    database="app",
    is_active=True,
    wal_status="reserved",
    invalidation_reason=None,
    confirmed_lsn=1,
    behind_bytes=0,
    retained_bytes=0,
    safe_bytes=None,
    inactive_since=None,
)
GOOD = PipeFacts(
    connector="waybill-acme",
    state="RUNNING",
    trace=None,
    tasks=(TaskFacts(id=0, state="RUNNING", trace=None),),
    slot_known=True,
    slot=SLOT,
    heartbeat_age_s=2.0,
)
FAILED = (TaskFacts(id=0, state="FAILED", trace="org.postgresql.util.PSQLException: no"),)


@pytest.mark.parametrize(
    ("facts", "health", "says"),
    [
        (GOOD, Health.HEALTHY, "heartbeat came through"),
        # a server nobody asked says nothing about the slot
        (replace(GOOD, slot_known=False, slot=None), Health.HEALTHY, "heartbeat"),
        # the pipe that says RUNNING and moves nothing
        (replace(GOOD, heartbeat_age_s=31.0), Health.STALLED, "nothing came through for 31 s"),
        (replace(GOOD, missing_topics=("waybill.acme.commands",)), Health.STALLED, "waybill.acme.commands"),
        # too young to tell
        (replace(GOOD, heartbeat_age_s=None), Health.STARTING, "no heartbeat"),
        (replace(GOOD, slot=replace(SLOT, is_active=False)), Health.STARTING, "not in use"),
        (replace(GOOD, tasks=FAILED), Health.FAILED, "PSQLException"),
        # a missing topic explains more than the producer's error
        (replace(GOOD, tasks=FAILED, missing_topics=("waybill.acme.commands",)), Health.FAILED, "do not exist"),
        (replace(GOOD, state="FAILED", trace="no such class"), Health.FAILED, "no such class"),
        # wal_status lost looks like this in Connect
        (replace(GOOD, tasks=(), slot=None, slot_known=False), Health.NO_TASK, "no task"),
        (replace(GOOD, tasks=(TaskFacts(id=0, state="UNASSIGNED", trace=None),)), Health.STARTING, "UNASSIGNED"),
        # the slot explains more than the task's error
        (replace(GOOD, slot=None, tasks=FAILED), Health.SLOT_LOST, "does not exist"),
        (replace(GOOD, slot=replace(SLOT, wal_status="lost")), Health.SLOT_LOST, "wal_status lost"),
        (replace(GOOD, slot=replace(SLOT, invalidation_reason="wal_removed")), Health.SLOT_LOST, "wal_removed"),
        (replace(GOOD, state="STOPPED", tasks=()), Health.STOPPED, "STOPPED"),
        (replace(GOOD, state="PAUSED"), Health.STOPPED, "PAUSED"),
        (replace(GOOD, state=None, tasks=()), Health.MISSING, "no such connector"),
    ],
)
def test_a_pipe_is_judged_by_what_came_through(facts: PipeFacts, health: Health, says: str) -> None:
    verdict = judge(facts)

    assert verdict.health is health
    assert says in verdict.because


def test_every_state_that_needs_somebody_says_what_to_do() -> None:
    sick = [
        replace(GOOD, heartbeat_age_s=31.0),
        replace(GOOD, tasks=FAILED),
        replace(GOOD, slot=None),
        replace(GOOD, state="STOPPED", tasks=()),
        replace(GOOD, state=None),
    ]

    assert all(judge(facts).advice for facts in sick)


def test_log_positions_are_numbers() -> None:
    assert parse_lsn("16/B374D848") == (0x16 << 32) + 0xB374D848
