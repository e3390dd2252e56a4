"""What happened, what next, who owns it, by when: the four answers about one delivery (OB-2).

Pure: facts and now in, answers out, for each of the eight states and for the time before any state exists.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from waybill.contracts.states import BY_PEOPLE, HANDED_OVER, State
from waybill.egress.core.addresses import EgressRule
from waybill.egress.core.targets import advice

__all__ = ["Answers", "Standing", "explain", "explain_unseen"]

#: Who acts when nobody has to: shown where a team's name would be.
NOBODY = "nobody"
#: Who acts when the destination's owner is not known yet.
UNKNOWN_OWNER = "the destination's owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a delivery, as far as the answers need it."""

    tenant: str
    destination: str
    state: State
    attempts: int
    error_code: str | None
    detail: str | None
    next_due: datetime | None
    expires_at: datetime | None
    updated_at: datetime | None
    #: The team that answers for the destination; None before a worker has named it.
    owner: str | None
    #: Cause of a dead letter that names this delivery.
    dead_letter: str | None = None
    #: Number of the earlier delivery of the aggregate that is not acknowledged, if any: the lane waits for it.
    waits_for: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Four answers, in words that name no payload."""

    happened: str
    next: str
    owner: str
    #: None when nothing is due.
    by: datetime | None


def explain(standing: Standing, now: datetime) -> Answers:  # noqa: PLR0911 - one answer per state
    """Answer for a delivery that the read model knows."""
    team = standing.owner or UNKNOWN_OWNER
    worker = f"worker of {standing.tenant}/{standing.destination}"
    why = _why(standing)
    tries = f"{standing.attempts} attempt{'' if standing.attempts == 1 else 's'}"
    match standing.state:
        case State.QUEUED:
            return _queued(standing, now, worker, team)
        case State.DELIVERED:
            return _delivered(standing, tries, team)
        case State.ACKNOWLEDGED:
            proof = "done, as people have seen," if standing.detail == BY_PEOPLE else "done and proven"
            return Answers(happened=f"{proof} after {tries}", next="nothing", owner=NOBODY, by=None)
        case State.RETRYING:
            due = standing.next_due
            late = due is not None and due <= now
            return Answers(
                happened=f"{tries}, the last ended with {why}",
                next="the next attempt is due now" if late else "the next attempt waits for its time",
                owner=worker,
                by=due,
            )
        case State.AMBIGUOUS:
            return Answers(
                happened=f"{tries}; it may have been done ({why})",
                next="the destination says what it did, or people decide; it is not sent again blindly",
                owner=team,
                by=standing.expires_at,
            )
        case State.FAILED:
            return Answers(
                happened=f"ended without effect after {tries}: {why}",
                next=f"{_correct(standing)}people decide: a new command, an exception or a redrive",
                owner=team,
                by=None,
            )
        case State.EXCEPTION:
            return Answers(
                happened=f"an approved exception stands in for it ({why})",
                next="a reviewer looks at it before it expires",
                owner=team,
                by=standing.next_due,
            )
        case State.DEAD_LETTER:
            return Answers(
                happened=f"no automated path is left after {tries}: {why}",
                next="people decide: evidence, an exception or a redrive",
                owner=team,
                by=None,
            )
        case _ as never:
            assert_never(never)


def _delivered(standing: Standing, tries: str, team: str) -> Answers:
    is_handed_over = standing.detail == HANDED_OVER
    return Answers(
        happened=(
            f"handed over in Kafka after {tries}; the result is awaited"
            if is_handed_over
            else f"accepted by the destination after {tries}; the result is awaited"
        ),
        next=(
            "its listeners read it and send the result; once they have read past it the worker waits for that as long "
            "as the destination declares, then decides"
            if is_handed_over
            else "the destination sends its result, else the worker decides when the bound passes"
        ),
        owner=team,
        by=standing.next_due or standing.expires_at,
    )


def _queued(standing: Standing, now: datetime, worker: str, team: str) -> Answers:
    if standing.dead_letter is not None:
        return Answers(
            happened=f"no worker can take it: {standing.dead_letter}",
            next="people decide",
            owner=team,
            by=standing.expires_at,
        )
    if standing.expires_at is not None and standing.expires_at <= now:
        return Answers(
            happened="in the topic, never sent, and now expired",
            next="the worker ends it without sending",
            owner=worker,
            by=standing.expires_at,
        )
    if standing.waits_for is not None:
        following = f"number {standing.waits_for} of the same aggregate is not settled and goes first"
    else:
        following = "the worker sends it"
    happened = "in the topic, not sent yet" if standing.attempts == 0 else f"{standing.attempts} tried, not settled"
    return Answers(happened=happened, next=following, owner=worker, by=standing.expires_at)


def _correct(standing: Standing) -> str:
    """Say what to correct first, where Waybill itself would not go to the destination."""
    kind, _, rule = (standing.detail or "").partition("_")
    if kind != "egress" or rule not in set(EgressRule):
        return ""
    return f"{advice(EgressRule(rule))}; then "


def _why(standing: Standing) -> str:
    parts = [part for part in (standing.error_code, standing.detail) if part]
    return ": ".join(parts) if parts else "no error named"


def explain_unseen(
    *, committed_at: datetime | None, in_topic: str | None, expires_at: datetime | None, now: datetime
) -> Answers:
    """Answer for a command the read model has not folded: committed in an outbox, or already in its topic.

    `committed_at` is when the outbox row was issued, None when no outbox was asked or none has it; `in_topic` is
    `partition p offset o` when the topic has it.
    """
    if in_topic is not None:
        return Answers(
            happened=f"in topic, {in_topic}; the read model has not reached it",
            next="the worker sends it; the read model catches up",
            owner="worker and read model",
            by=expires_at,
        )
    lag_s = max((now - committed_at).total_seconds(), 0.0) if committed_at is not None else 0.0
    return Answers(
        happened=f"committed, relay lag {lag_s:.0f} s",
        next="the relay publishes it",
        owner="relay",
        by=expires_at,
    )
