"""Was it done before: the decision between executing, reporting and refusing.

A delivery is known by its id and by its operation. The same id with the same body is a repeat and gets the stored
receipt (GW-4); with another body it is a conflict and nothing is applied (GW-5). Another delivery of the same
operation that asks for the same thing reports the same result under its own id; one that asks for something else is
a conflict too (DC-16).
"""

from dataclasses import dataclass, replace
from typing import TypeAlias
from uuid import UUID

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import parse_receipt, render_receipt

__all__ = ["Conflict", "Identity", "Pending", "Repeat", "Stored", "decide_pending", "decide_repeat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a delivery is recognised by."""

    delivery_id: UUID
    operation_id: str
    body_digest: bytes
    operation_digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An executed delivery as it was recorded."""

    identity: Identity
    receipt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A delivery that was begun and has no receipt: it may have acted."""

    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Executed before: this is its receipt, byte for byte for the same delivery."""

    receipt: bytes
    #: False: another delivery of the same operation did it, and the receipt was rendered anew for this one.
    is_same_delivery: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The identifier is taken by something else."""

    problem: Problem


Known: TypeAlias = Repeat | Conflict


def decide_repeat(stored: Stored, incoming: Identity) -> Known:
    """Decide what a delivery gets whose id or operation is recorded."""
    if stored.identity.delivery_id == incoming.delivery_id:
        if stored.identity.body_digest == incoming.body_digest:
            return Repeat(receipt=stored.receipt)
        return _conflict("body_differs", "this delivery id was executed with another body")
    if stored.identity.operation_digest == incoming.operation_digest:
        receipt = replace(parse_receipt(stored.receipt), delivery_id=str(incoming.delivery_id))
        return Repeat(receipt=render_receipt(receipt), is_same_delivery=False)
    return _conflict("operation_differs", "this operation id was executed for something else")


def decide_pending(pending: Pending, incoming: Identity) -> Conflict | None:
    """Refuse what meets a pending record that is not its own; None: it is its own, to be found out about.

    Another delivery of the same operation waits until that one is settled: it comes again.
    """
    if pending.identity.delivery_id == incoming.delivery_id:
        if pending.identity.body_digest == incoming.body_digest:
            return None
        return _conflict("body_differs", "this delivery id was begun with another body")
    if pending.identity.operation_digest == incoming.operation_digest:
        return Conflict(problem=Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="operation_pending"))
    return _conflict("operation_differs", "this operation id was begun for something else")


def _conflict(reason: str, detail: str) -> Conflict:
    return Conflict(problem=Problem(code=ErrorCode.VERSION_CONFLICT, reason=reason, detail=detail))
