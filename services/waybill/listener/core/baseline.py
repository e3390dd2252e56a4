"""Whether a part of a baseline is taken: only what this listener asked for, and nothing of it before all of it is here.

A baseline moves every aggregate at once and cannot be taken back, so a statement from another time must not count: an
old one would have a restored listener take what it has done for missing, a foreign one would have it pass over what
it has not done. What binds a statement to this listener and this moment is the nonce it made when it asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from waybill.contracts.baseline import BaselinePart, statement_digest
from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem

__all__ = ["Asked", "Step", "judge_part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The last time a listener asked for a baseline, and what has come since."""

    nonce: str
    #: The statement whose parts have begun to come; None while none has.
    baseline_id: UUID | None = None
    digest: str = ""
    parts: int = 0
    applied_at: datetime | None = None
    #: By part, the digest of its data.
    staged: Mapping[int, str] = field(default_factory=dict)


class Step(StrEnum):
    """What is done with a part."""

    #: Keep it; others are missing.
    STAGE = "stage"
    #: Keep it; it is the last that was missing, and all of them together are what was approved: it counts now.
    APPLY = "apply"
    #: It was kept before.
    STAGED = "staged"
    #: The whole statement counts already.
    APPLIED = "applied"


def judge_part(part: BaselinePart, asked: Asked | None, now: datetime) -> Step | Problem:
    """Decide what is done with a part that is believed.

    Args:
        part: signed by the tenant, for us.
        asked: the last time we asked; None: never.
        now: UTC, from the listener's clock.
    """
    if asked is None:
        return _conflict("baseline_not_asked", "this listener has asked for no baseline")
    if foreign := _check_statement(part, asked):
        return foreign
    if asked.applied_at is not None:
        return Step.APPLIED
    if part.expires_at <= now:
        return Problem(code=ErrorCode.POLICY_BLOCK, reason="expired", detail="the baseline's time is over")
    return Step.STAGED if part.part in asked.staged else _complete(part, asked.staged)


def _complete(part: BaselinePart, staged: Mapping[int, str]) -> Step | Problem:
    """Decide whether a new part makes the statement whole, and whether that is the one that was approved."""
    together = {**staged, part.part: part.data_sha256}
    if len(together) < part.parts:
        return Step.STAGE
    if statement_digest([together[number] for number in sorted(together)]) != part.digest:
        return _conflict("baseline_digest", "the parts are not the statement that was approved: ask anew")
    return Step.APPLY


def _check_statement(part: BaselinePart, asked: Asked) -> Problem | None:
    """Refuse a part of another statement than the one this listener asked for and has begun to take."""
    if part.nonce != asked.nonce:
        return _conflict("baseline_nonce", "made for another time that a baseline was asked for")
    statement = (part.baseline_id, part.digest, part.parts)
    if asked.baseline_id is not None and statement != (asked.baseline_id, asked.digest, asked.parts):
        return _conflict("baseline_differs", "parts of another statement came before: ask anew")
    if asked.staged.get(part.part, part.data_sha256) != part.data_sha256:
        return _conflict("baseline_differs", "this part came before with other aggregates: ask anew")
    return None


def _conflict(reason: str, detail: str) -> Problem:
    return Problem(code=ErrorCode.VERSION_CONFLICT, reason=reason, detail=detail)
