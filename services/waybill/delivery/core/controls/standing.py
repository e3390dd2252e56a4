"""What people, or a guard, decided about a destination: whether it is attempted, and how fast at most.

Rows of history: each change is a whole record of who decided what, when and why, and the newest one is in force. What
`waybill apply` owns (`limits` in `fabric.yaml`) and what is decided here are apart; a limit decided here is in force
until it is cleared.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from waybill.contracts.fabric import FlowLimits

__all__ = ["WHOLE_TENANT", "Control", "Decider", "Standing", "changed", "in_force"]

#: Stands where a destination's name would: the limits of all of a tenant's destinations together.
WHOLE_TENANT = ""


class Standing(StrEnum):
    """Whether a destination is attempted."""

    #: Attempted. People set it.
    RUNNING = "running"
    #: Not attempted until people resume it. People set it, or the guard against mass dead-lettering.
    PAUSED = "paused"
    #: No longer read; what was read is finished, then it is not attempted until people resume it. People set it.
    DRAINING = "draining"
    #: It said that it is gone (410): not attempted until people resume it. The worker sets it.
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One control, and everything that is in force with it."""

    tenant: str
    destination: str
    standing: Standing = Standing.RUNNING
    #: In force instead of what `fabric.yaml` says; None leaves that.
    limits: FlowLimits = field(default_factory=FlowLimits)
    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """Who decides, when and why."""

    at: datetime
    by: str
    reason: str


def changed(
    before: Control | None, place: tuple[str, str], who: Decider, *, standing: Standing | None = None,
    limits: FlowLimits | None = None,
) -> Control | None:  # fmt: skip
    """Return the record of a control; None when it is in force already.

    Args:
        before: what is in force; None when nothing was ever decided.
        place: tenant and destination.
        who: who decides.
        standing: the one wanted; None leaves it.
        limits: those wanted, all of them; None leaves them.
    """
    tenant, destination = place
    known = before or Control(tenant=tenant, destination=destination, at=who.at, by=who.by, reason=who.reason)
    wanted = replace(
        known,
        standing=known.standing if standing is None else standing,
        limits=known.limits if limits is None else limits,
    )
    return None if wanted == known else replace(wanted, at=who.at, by=who.by, reason=who.reason)


def in_force(declared: FlowLimits, decided: FlowLimits) -> FlowLimits:
    """Return the limits in force: each as decided at run time, else as declared."""
    return FlowLimits(
        rate_per_s=declared.rate_per_s if decided.rate_per_s is None else decided.rate_per_s,
        in_flight=declared.in_flight if decided.in_flight is None else decided.in_flight,
    )
