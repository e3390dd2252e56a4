"""What becomes of an event before the outbox is asked: a command to be taken, or a dead letter."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import OutboxConfig, TenantConfig
from waybill.contracts.problem import Problem
from waybill.delivery.ordered.dead_letters import Letter
from waybill.ingress.core.events import IGNORED, Event, RawHeaders, read_event
from waybill.kernel.clock import parse_instant
from waybill.kernel.errors import InvariantBroken, RefusedError
from waybill.outbox import CommandDraft, Rule
from waybill.outbox.core.rules import SQLSTATES
from waybill.outbox.core.types import applied_types, with_versions
from waybill.submission.core.members import DATA, MEMBERS, Member
from waybill.submission.core.reading import read_draft
from waybill.submission.core.refusals import code_of
from waybill.submission.core.resubmission import SubmissionId, submission_id

__all__ = ["ATTRIBUTES", "PRINCIPAL", "Wanted", "judge", "letter_for"]

#: Who submits what comes from the topic. No principal of an API can be called so.
PRINCIPAL: Final = "topic:ingress"
_EXPIRES_AT: Final = "expiresat"
_MEANT: Final = {
    "type": "commandType",
    "subject": "aggregate",
    "datacontenttype": "contentType",
    "dataschema": "dataSchema",
}
#: CloudEvents attribute → member of a command. An attribute has the member's name in lower case, or CloudEvents' own.
ATTRIBUTES: Final[Mapping[str, str]] = {
    **_MEANT,
    **{name.lower(): name for name in MEMBERS if name not in {*_MEANT.values(), "dataBase64"}},
}
_CALLED: Final = {member: attribute for attribute, member in ATTRIBUTES.items()}
#: What is told of a refusal of the outbox: which attribute or setting, never what it was.
_SAID: Final[Mapping[Rule, str]] = {
    Rule.UNKNOWN_TENANT: "the outbox does not serve this tenant: run waybill apply",
    Rule.FOREIGN_AGGREGATE_TYPE: "no outbox numbers the aggregate type of subject: fabric.yaml maps each to one",
    Rule.UNKNOWN_ROUTE: "fabric.yaml has no route for type, and the event names not both destinations and ttl",
    Rule.UNKNOWN_DESTINATION: "destinations or optional names a destination that is not configured",
    Rule.PAYLOAD_TOO_LARGE: "the data are larger than maxPayload of the outbox: send a reference",
    Rule.PAYLOAD_NOT_JSON: "datacontenttype says JSON, and the data are not exactly one JSON value in UTF-8",
    Rule.FORM_NOT_PERMITTED: "the route does not let data travel in this form",
    Rule.TTL_OUT_OF_RANGE: "ttl is not above zero, or longer than a destination remembers",
    Rule.MALFORMED_FIELD: "an attribute has a shape it may not have",
    Rule.UNKNOWN_OPTION: "an attribute means nothing here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A command to be taken, once."""

    submission_id: SubmissionId
    key: str
    digest: bytes
    draft: CommandDraft
    outbox: OutboxConfig
    #: Why it is refused, unless it was taken before: what was taken stays taken, whatever holds now.
    objection: Letter | None = None


def judge(headers: RawHeaders, value: bytes | None, tenant: TenantConfig, now: datetime) -> Wanted | Letter:
    """Read a record of a tenant's ingress topic as the command it orders, or say why it is none."""
    event = read_event(headers, value)
    if isinstance(event, Letter):
        return event
    try:
        ttl = _time_left(event, now)
    except ValueError as error:
        return Letter(code=ErrorCode.VALIDATION, cause="malformed_member", detail=str(error))
    draft = read_draft(_members(event), called=_CALLED)
    if isinstance(draft, Problem):
        return Letter(code=draft.code, cause=draft.reason, detail=draft.detail)
    aggregate = f"{draft.aggregate_type}/{draft.aggregate_id}"
    outbox = next((each for each in tenant.outboxes if draft.aggregate_type in each.aggregate_types), None)
    if outbox is None:
        return _refused(Rule.FOREIGN_AGGREGATE_TYPE, aggregate)
    checked, objection = _checked(event, draft if ttl is None else replace(draft, ttl=ttl), tenant)
    return Wanted(
        submission_id=submission_id(tenant.name, PRINCIPAL, event.key),
        key=event.key,
        digest=event.digest,
        draft=checked,
        outbox=outbox,
        objection=None if objection is None else replace(objection, aggregate=aggregate),
    )


def _checked(event: Event, draft: CommandDraft, tenant: TenantConfig) -> tuple[CommandDraft, Letter | None]:
    """Return the command as it is to be emitted, with what configuration and time say against it."""
    if event.attributes.get("tenant", tenant.name) != tenant.name:
        detail = "tenant is not the one the topic belongs to"
        return draft, Letter(code=ErrorCode.AUTHZ, cause="foreign_tenant", detail=detail)
    if tenant.ingress is None or draft.command_type not in tenant.ingress.command_types:
        detail = "type is not among the tenant's ingress.commandTypes"
        return draft, Letter(code=ErrorCode.AUTHZ, cause="not_permitted", detail=detail)
    if _EXPIRES_AT in event.attributes and draft.ttl is not None and draft.ttl <= timedelta(0):
        detail = "expiresat was over when the event was read"
        return draft, Letter(code=ErrorCode.VALIDATION, cause="expired", detail=detail)
    try:
        (checked,) = with_versions(tenant.name, [draft], applied_types(tenant, [draft]))
    except RefusedError as error:  # says pointer and keyword of the schema, nothing of the data
        return draft, Letter(code=code_of(error.rule), cause=error.rule, detail=str(error))
    return checked, None


def letter_for(answer: str, wanted: Wanted) -> Letter | None:
    """Return why a command was not taken, from what the outbox answered; None where it is there, now or before."""
    aggregate = f"{wanted.draft.aggregate_type}/{wanted.draft.aggregate_id}"
    match answer:
        case "taken" | "repeated":
            return None
        case "objected":
            return wanted.objection
        case "reused":
            return Letter(
                code=ErrorCode.VERSION_CONFLICT,
                cause="event_reused",
                detail="an event with this source and id came before and ordered something else: that one counts",
                aggregate=aggregate,
            )
        case "unreadable":
            return _refused(Rule.MALFORMED_FIELD, aggregate)
    rule = SQLSTATES.get(answer)
    if rule is None:
        raise InvariantBroken("an outbox answered what is neither an answer nor a rule")
    return _refused(rule, aggregate)


def _refused(rule: Rule, aggregate: str) -> Letter:
    detail = _SAID.get(rule, "a rule of the outbox")
    return Letter(code=code_of(rule), cause=rule.value, detail=detail, aggregate=aggregate)


def _members(event: Event) -> dict[str, object]:
    """Name what the event says as a submission names it; what means nothing keeps a name that is refused."""
    members: dict[str, object] = {}
    for name, value in event.attributes.items():
        if name in IGNORED or name in {"tenant", _EXPIRES_AT}:
            continue
        member = MEMBERS.get(ATTRIBUTES.get(name, ""))
        members[member.name if member is not None else f"attribute {name}"] = _converted(value, member)
    if event.data is not None or "dataRef" not in members:
        members[DATA] = event.data or b""
    return members


def _converted(value: object, member: Member | None) -> object:
    if not isinstance(value, str) or member is None:
        return value
    if member.kind == "whole":
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value
    return value.split(",") if member.kind == "names" else value


def _time_left(event: Event, now: datetime) -> timedelta | None:
    """Return how long the command may live by its `expiresat`; None where it has none."""
    text = event.attributes.get(_EXPIRES_AT)
    if text is None:
        return None
    if "ttl" in event.attributes:
        raise ValueError("ttl and expiresat: expected one of them")
    try:
        return parse_instant(str(text)) - now
    except (ValueError, OverflowError):
        raise ValueError("expiresat: expected an RFC 3339 instant with an offset") from None
