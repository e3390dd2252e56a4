"""What the facts about a pipe mean. A connector that says RUNNING is believed only when something came through.

The order of the rules is the order of a person's questions: does it exist, was it stopped, is the slot alive, did the
task fail, and last, does anything arrive.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from waybill.relay.core.facts import PipeFacts

__all__ = ["STALLED_AFTER_S", "Health", "Verdict", "judge"]

#: Heartbeats come every five seconds; six of them missing is no hiccup.
STALLED_AFTER_S: Final = 30.0


class Health(StrEnum):
    """How a pipe is."""

    #: Heartbeats come through.
    HEALTHY = "healthy"
    #: It has not been running long enough to tell.
    STARTING = "starting"
    #: Connect says RUNNING, yet nothing comes through.
    STALLED = "stalled"
    #: A task failed; Connect will not restart it by itself.
    FAILED = "failed"
    #: Connect has the connector but runs no task for it.
    NO_TASK = "no_task"
    #: Somebody stopped or paused it.
    STOPPED = "stopped"
    #: The slot is gone or invalid: there is a hole.
    SLOT_LOST = "slot_lost"
    #: Connect has no such connector.
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a pipe is, why that is believed, and what to do."""

    health: Health
    because: str
    advice: str = ""


def judge(facts: PipeFacts, stalled_after_s: float = STALLED_AFTER_S) -> Verdict:
    """Decide how a pipe is."""
    return _absent(facts) or _slot(facts) or _tasks(facts) or _flow(facts, stalled_after_s)


def _absent(facts: PipeFacts) -> Verdict | None:
    if facts.state is None:
        return Verdict(
            health=Health.MISSING,
            because="Connect has no such connector",
            advice="run `waybill connect apply` or `waybill apply`",
        )
    return None


def _slot(facts: PipeFacts) -> Verdict | None:
    recover = f"run `waybill relay recover --connector {facts.connector}`: it finds and republishes what is missing"
    if facts.slot_known and facts.slot is None:
        return Verdict(health=Health.SLOT_LOST, because="its replication slot does not exist", advice=recover)
    if facts.slot is not None and facts.slot.is_lost:
        reason = facts.slot.invalidation_reason or "wal_status lost"
        return Verdict(health=Health.SLOT_LOST, because=f"its replication slot is lost ({reason})", advice=recover)
    return None


def _tasks(facts: PipeFacts) -> Verdict | None:
    if facts.state in {"STOPPED", "PAUSED"}:
        return Verdict(
            health=Health.STOPPED,
            because=f"somebody put it to {facts.state}",
            advice=f"if that was an interrupted recovery, run `waybill relay recover --connector {facts.connector}` "
            "again; else resume it",
        )
    failed = next((task for task in facts.tasks if task.state == "FAILED"), None)
    if facts.state == "FAILED" or failed is not None:
        trace = (failed.trace if failed else facts.trace) or "no trace"
        if facts.missing_topics:
            return Verdict(
                health=Health.FAILED,
                because=f"the outbox routes to topics that do not exist: {', '.join(facts.missing_topics)} ({trace})",
                advice="run `waybill topics apply --tenant T`, then `waybill connect apply`, which restarts the task",
            )
        return Verdict(
            health=Health.FAILED,
            because=trace,
            advice="restart it with `waybill connect apply`; if it fails on the same row again, the row is the cause",
        )
    if not facts.tasks:
        return Verdict(
            health=Health.NO_TASK,
            because="Connect runs no task for it: unassigned after a lost worker, or the slot cannot be used",
            advice="wait for the rebalance; if it stays, look at the slot and at the worker's log",
        )
    waiting = next((task for task in facts.tasks if task.state != "RUNNING"), None)
    if waiting is not None:
        return Verdict(health=Health.STARTING, because=f"task {waiting.id} is {waiting.state}")
    return None


def _flow(facts: PipeFacts, stalled_after_s: float) -> Verdict:
    if facts.missing_topics:
        return Verdict(
            health=Health.STALLED,
            because=f"RUNNING, but the outbox routes to topics that do not exist: {', '.join(facts.missing_topics)}; "
            "the first row for one of them stops every tenant",
            advice="run `waybill topics apply --tenant T`; the connector goes on by itself",
        )
    if facts.heartbeat_age_s is None:
        return Verdict(health=Health.STARTING, because="no heartbeat has come through yet")
    if facts.heartbeat_age_s > stalled_after_s:
        return Verdict(
            health=Health.STALLED,
            because=f"RUNNING, but nothing came through for {facts.heartbeat_age_s:.0f} s",
            advice="a row that cannot be produced (its topic is gone, or it is too large) or a database that does not "
            "answer: look at the worker's log and take a thread dump of it",
        )
    if facts.slot is not None and not facts.slot.is_active:
        return Verdict(
            health=Health.STARTING,
            because="its slot is not in use at the moment",
            advice="if it stays, nothing is read: look at the worker's log",
        )
    return Verdict(health=Health.HEALTHY, because=f"a heartbeat came through {facts.heartbeat_age_s:.0f} s ago")
