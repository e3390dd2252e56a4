"""What must not be done here although it was rightly ordered: legal hold, purpose, region, budget of personal data.

The last of the five checks (DC-14). The rules are data, read from a file that people who are no programmers can
review; the decision is pure. A rule that applies and cannot be judged blocks: data that are sealed or elsewhere name no
purpose. What a block says holds names of rules and members, never a value of the data.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.command import DataForm
from waybill.contracts.envelope import Envelope
from waybill.contracts.problem import Problem

__all__ = ["EVERY", "AllowedValues", "Block", "Budget", "LegalHold", "Rule", "Rules", "blocked"]

#: Stands for every command type, and at the end of an aggregate for every id of its type.
EVERY: Final = "*"


class Rule(StrEnum):
    """Why a policy blocks; the reason on the wire."""

    #: The aggregate must be left as it is.
    LEGAL_HOLD = "legal_hold"
    #: For no purpose that is allowed here.
    PURPOSE = "purpose"
    #: Not to be done in this region.
    REGION = "region"
    #: More personal data than this listener may see.
    PII_BUDGET = "pii_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A policy says no."""

    rule: Rule
    #: For people; travels to the sender, is never recorded.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalHold:
    """Some aggregates are left as they are."""

    #: `type/id`, or `type/*`.
    aggregates: frozenset[str]
    #: Where it is written why: a case number.
    reference: str
    commands: frozenset[str] = frozenset({EVERY})
    #: From then on it holds no more; None: until it is taken out of the file.
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedValues:
    """One member of the data must hold one of some values."""

    #: Names from the outside in, joined by `.`.
    member: str
    allowed: frozenset[str]
    commands: frozenset[str] = frozenset({EVERY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The data hold no other members than these."""

    #: A member with members is allowed as a whole, or by the names of what is in it (`address.city`).
    members: frozenset[str]
    commands: frozenset[str] = frozenset({EVERY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a listener's file says."""

    legal_holds: tuple[LegalHold, ...] = ()
    purposes: tuple[AllowedValues, ...] = ()
    regions: tuple[AllowedValues, ...] = ()
    budgets: tuple[Budget, ...] = ()

    def current(self) -> "Rules":
        """Return these: rules that do not change are their own source."""
        return self

    def judge(self, envelope: Envelope, now: datetime) -> Block | None:
        """Return the first block, in the order legal hold, purpose, region, budget."""
        kind = f"{envelope.aggregate.partition('/')[0]}/{EVERY}"
        for hold in self.legal_holds:
            if hold.until is not None and hold.until <= now:
                continue
            if _applies(hold.commands, envelope) and {envelope.aggregate, kind} & hold.aggregates:
                return Block(rule=Rule.LEGAL_HOLD, detail=hold.reference)
        for rule, demands in ((Rule.PURPOSE, self.purposes), (Rule.REGION, self.regions)):
            for demand in demands:
                if _applies(demand.commands, envelope) and _value(envelope, demand.member) not in demand.allowed:
                    return Block(rule=rule, detail=f"member {demand.member}")
        for budget in self.budgets:
            if _applies(budget.commands, envelope) and not _is_within(envelope, budget):
                return Block(rule=Rule.PII_BUDGET)
        return None


def blocked(block: Block) -> Problem:
    """Return what a block is answered with."""
    return Problem(code=ErrorCode.POLICY_BLOCK, reason=block.rule.value, detail=block.detail)


def _applies(commands: frozenset[str], envelope: Envelope) -> bool:
    return EVERY in commands or envelope.command_type in commands


def _document(envelope: Envelope) -> Any:
    """Return clear JSON data, or None: they cannot be judged."""
    if envelope.data_form is not DataForm.CLEAR:
        return None
    try:
        return json.loads(envelope.data, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member twice: two readers could see two values")
    return found


def _value(envelope: Envelope, member: str) -> str | None:
    found = _document(envelope)
    for name in member.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None


def _is_within(envelope: Envelope, budget: Budget) -> bool:
    found = _document(envelope)
    return isinstance(found, Mapping) and all(_is_allowed(path, budget.members) for path in _paths(found))


def _is_allowed(path: tuple[str, ...], members: frozenset[str]) -> bool:
    return any(".".join(path[:length]) in members for length in range(1, len(path) + 1))


def _paths(found: Any, outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every value that holds no members; what is in a list is at the path of the list."""
    if isinstance(found, Mapping) and found:
        for name, value in found.items():
            yield from _paths(value, (*outer, name))
    elif isinstance(found, list) and any(isinstance(item, Mapping | list) for item in found):
        for item in found:
            yield from _paths(item, outer)
    elif outer:
        yield outer
