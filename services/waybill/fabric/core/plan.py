"""The step from what is applied to what is wanted: pure, complete, and refused where it would break a promise.

A file speaks for the tenants it names and for no other: each team may keep its own. Within a tenant, names are never
reused or renamed, since consumer groups, offsets, counters and audit records hang on them; so only a route may leave
its tenant. It is retired, its history stays, and the same command type may be routed again later.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from waybill.commandtypes.core.json_schema import read_strict
from waybill.commandtypes.core.narrowing import is_equal
from waybill.contracts.fabric import FabricConfig, Transport
from waybill.fabric.core.document import Plain
from waybill.fabric.core.objects import Body, ObjectKey, ObjectKind, to_objects

__all__ = ["Action", "Change", "FieldChange", "Plan", "Refusal", "complete", "plan"]


class Action(StrEnum):
    """What happens to an object."""

    #: It was not there, or was retired.
    CREATE = "create"
    #: Some of its fields change.
    UPDATE = "update"
    #: It ends; its rows stay, its record on the config topic becomes a tombstone.
    RETIRE = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One field, as the file writes it; None where it is absent. Nested fields are `retry.base`."""

    field: str
    old: Plain
    new: Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One object that will differ."""

    action: Action
    key: ObjectKey
    fields: tuple[FieldChange, ...]
    #: The body to store; None when retired.
    body: Body | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A step that is not taken, the rule (`rules.RULES`) and what to do instead."""

    key: ObjectKey
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that would change; nothing of it may be done while something is refused."""

    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...]


def plan(current: FabricConfig, wanted: FabricConfig) -> Plan:
    """Compare the tenants `wanted` names by meaning; versions and the order in files play no part."""
    named = {tenant.name for tenant in wanted.tenants}
    old = {key: body for key, body in to_objects(current).items() if key.tenant in named}
    new = to_objects(wanted)
    refusals = (*_refusals(old, new), *_place_refusals(current, wanted))
    return Plan(changes=tuple(_changes(old, new)), refusals=refusals)


def complete(current: FabricConfig, wanted: FabricConfig) -> FabricConfig:
    """Return what will be applied: the tenants of `wanted`, and those of `current` it does not name."""
    named = {tenant.name for tenant in wanted.tenants}
    others = tuple(tenant for tenant in current.tenants if tenant.name not in named)
    return replace(wanted, tenants=wanted.tenants + others)


def _changes(old: Mapping[ObjectKey, Body], new: Mapping[ObjectKey, Body]) -> Iterator[Change]:
    for key in sorted({*old, *new}, key=lambda key: key.place):
        fields = tuple(_fields(old.get(key, {}), new.get(key, {})))
        if key not in old:
            yield Change(action=Action.CREATE, key=key, fields=fields, body=new[key])
        elif key not in new:
            yield Change(action=Action.RETIRE, key=key, fields=fields, body=None)
        elif fields:
            yield Change(action=Action.UPDATE, key=key, fields=fields, body=new[key])


def _fields(old: Body, new: Body, inside: str = "") -> Iterator[FieldChange]:
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) or isinstance(after, dict):
            yield from _fields(_table(before), _table(after), f"{inside}{name}.")
        elif before != after:
            yield FieldChange(field=inside + name, old=before, new=after)


def _table(value: Plain) -> Body:
    return value if isinstance(value, dict) else {}


#: How a destination is reached that was applied before there was a choice.
_HTTP: Final = Transport.HTTP.value
_STAYS: Final = {
    ObjectKind.OUTBOX: "an outbox stays with its tenant: put it back; its counters and its slot hang on the name",
    ObjectKind.DESTINATION: "a destination stays with its tenant: put it back; take it out of its routes to stop new commands",
    ObjectKind.COMMAND_TYPE: "a command type stays in the catalogue: put it back; commands may be under way that name its versions",
}


def _refusals(old: Mapping[ObjectKey, Body], new: Mapping[ObjectKey, Body]) -> Iterator[Refusal]:
    for key, before in old.items():
        after = new.get(key)
        if after is None:
            if key.kind in _STAYS:
                yield Refusal(key=key, rule="never-removed", message=_STAYS[key.kind])
        elif key.kind is ObjectKind.TENANT and before["partitions"] != after["partitions"]:
            message = f"partitions stay {before['partitions']}: with another number aggregates would move and lose their order"
            yield Refusal(key=key, rule="fixed-partitions", message=message)
        elif key.kind is ObjectKind.OUTBOX:
            yield from _outbox_refusals(key, before, after)
        elif key.kind is ObjectKind.DESTINATION and "results" in before and "results" not in after:
            message = "results stay declared: deliveries that were accepted wait for one; put the block back"
            yield Refusal(key=key, rule="results-stay", message=message)
        elif key.kind is ObjectKind.COMMAND_TYPE:
            yield from _version_refusals(key, before, after)
        elif key.kind is ObjectKind.DESTINATION and before.get("transport", _HTTP) != after.get("transport", _HTTP):
            message = (
                f"transport stays {before.get('transport', _HTTP)}: a delivery that waits would go out by both; "
                "declare a new destination and route to it"
            )
            yield Refusal(key=key, rule="transport-stays", message=message)


def _outbox_refusals(key: ObjectKey, before: Body, after: Body) -> Iterator[Refusal]:
    if before["schema"] != after["schema"]:
        message = f"schema stays {before['schema']}: the counters of its aggregates live there"
        yield Refusal(key=key, rule="fixed-schema", message=message)
    kept, wanted = before["aggregateTypes"], after["aggregateTypes"]
    assert isinstance(kept, list)
    assert isinstance(wanted, list)
    for gone in sorted(str(name) for name in kept if name not in wanted):
        message = (
            f"aggregate type {gone} stays with this outbox: another counter would number its commands from 1 again"
        )
        yield Refusal(key=key, rule="aggregate-stays", message=message)


def _version_refusals(key: ObjectKey, before: Body, after: Body) -> Iterator[Refusal]:
    if before["format"] != after["format"]:
        message = f"format stays {before['format']}: its versions are written in it"
        yield Refusal(key=key, rule="version-stays", message=message)
        return
    wanted = _schemas(after)
    for version, schema in _schemas(before).items():
        if version not in wanted:
            yield Refusal(key=key, rule="version-stays", message=f"{version} stays: put it back, producers may name it")
        elif not is_equal(read_strict(wanted[version]), read_strict(schema)):
            message = f"the schema of {version} stays as it was applied: put it back, and write another version"
            yield Refusal(key=key, rule="version-stays", message=message)


def _schemas(body: Body) -> dict[str, str]:
    versions = body["versions"]
    assert isinstance(versions, list)
    return {str(each["version"]): str(each["schema"]) for each in versions if isinstance(each, dict)}


def _place_refusals(current: FabricConfig, wanted: FabricConfig) -> Iterator[Refusal]:
    """Hold outboxes of other tenants against the wanted ones: one name is one place, and the other way round."""
    named = {tenant.name for tenant in wanted.tenants}
    others = [outbox for tenant in current.tenants if tenant.name not in named for outbox in tenant.outboxes]
    for outbox in (outbox for tenant in wanted.tenants for outbox in tenant.outboxes):
        key = ObjectKey(tenant=outbox.tenant, kind=ObjectKind.OUTBOX, name=outbox.name)
        for other in others:
            is_same_place = (outbox.dsn, outbox.schema) == (other.dsn, other.schema)
            if outbox.name == other.name and not is_same_place:
                message = (
                    f"tenant {other.tenant} has an outbox of this name with another dsn or schema: choose another name"
                )
                yield Refusal(key=key, rule="outbox-place", message=message)
            elif is_same_place and outbox.name != other.name:
                message = f"tenant {other.tenant} calls the outbox with this dsn and schema {other.name}: use that name"
                yield Refusal(key=key, rule="outbox-place", message=message)
