"""What the two producers do all day: believable privacy and dispatch work, the same for the same run.

No names, no addresses: references only, as it should be in production. Steps of many aggregates are interleaved, so
that several writers meet on one aggregate now and then.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["ROLLED_BACK_EVERY", "Step", "plan_steps"]

#: Every so many steps, the same transaction is tried once before and rolled back: it must leave nothing.
ROLLED_BACK_EVERY: Final = 20

#: What happens to one subject, in order; the last goes to two destinations.
SUBJECT_STEPS: Final = (
    ("consent.change", {"purpose": "newsletter", "granted": True, "notice": "notice-2026-03"}),
    ("consent.change", {"purpose": "profiling", "granted": False, "notice": "notice-2026-03"}),
    ("subject.restrict", {"basis": "art-18", "until": "2027-05-31"}),
    ("subject.erase", {"basis": "art-17", "systems": ["mail", "orders", "support"], "hold": None}),
)
#: What happens to one incident, in order.
INCIDENT_STEPS: Final = (
    ("incident.open", {"kind": "medical", "priority": 2, "grid": "32U-MV-912-338"}),
    ("incident.update", {"status": "dispatched", "units": ["A-17"]}),
    ("incident.update", {"status": "on-scene", "units": ["A-17", "E-03"]}),
    ("incident.update", {"status": "transporting", "units": ["A-17"], "price_per_km": 1.10}),
    ("incident.close", {"outcome": "handed-over", "units": []}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One business transaction: a row of the producer's own, and one command."""

    tenant: str
    aggregate_type: str
    aggregate_id: str
    command_type: str
    data: dict[str, object]
    request_id: str | None = None
    request_size: int | None = None
    #: Tried once and rolled back before it is done.
    is_rolled_back_first: bool = False


def plan_steps(commands: int, run: str, *, privacy: str, dispatch: str) -> list[Step]:
    """Return `commands` steps of two tenants; `run` makes their aggregates new.

    Args:
        commands: at least 2.
        run: a short word, part of every aggregate id.
        privacy: tenant whose subjects are looked after.
        dispatch: tenant whose incidents are.
    """
    of_privacy = commands // 2
    steps = _interleave(
        list(_subjects(of_privacy, run, privacy)), list(_incidents(commands - of_privacy, run, dispatch))
    )
    return [replace(step, is_rolled_back_first=number % ROLLED_BACK_EVERY == 0) for number, step in enumerate(steps, 1)]


def _interleave(left: list[Step], right: list[Step]) -> Iterator[Step]:
    for number in range(max(len(left), len(right))):
        yield from (steps[number] for steps in (left, right) if number < len(steps))


def _subjects(count: int, run: str, tenant: str) -> Iterator[Step]:
    subjects = -(-count // len(SUBJECT_STEPS))
    for number in range(count):
        place, subject = divmod(number, subjects)
        command_type, data = SUBJECT_STEPS[place]
        is_request = command_type == "subject.erase"
        yield Step(
            tenant=tenant,
            aggregate_type="subject",
            aggregate_id=f"{run}-{subject:04d}",
            command_type=command_type,
            data={"subject": f"ref-{run}-{subject:04d}", **data},
            request_id=f"dsr-{run}-{subject:04d}" if is_request else None,
            request_size=1 if is_request else None,
        )


def _incidents(count: int, run: str, tenant: str) -> Iterator[Step]:
    incidents = -(-count // len(INCIDENT_STEPS))
    for number in range(count):
        place, incident = divmod(number, incidents)
        command_type, data = INCIDENT_STEPS[place]
        yield Step(
            tenant=tenant,
            aggregate_type="incident",
            aggregate_id=f"{run}-{incident:04d}",
            command_type=command_type,
            data={"incident": f"inc-{run}-{incident:04d}", **data},
        )
