"""The one verification: whether what came in may be executed here, whatever door it came by.

Five checks, always in this order, and the first that fails names the refusal (DC-9 to DC-15):

1. *signature*: over the raw bytes, before anything else is believed; then the envelope that was signed;
2. *tenant*: signed for this tenant and this destination; and not too late, since an expired command is nobody's;
3. *capability*: a handler is here for the command type, at the demanded version;
4. *sequence*: no conflict with what was executed, no gap, nothing older that was not deferred;
5. *policy*: legal hold, purpose, region, budget of personal data.

`believe` needs bytes and keys, `admit` what the store knows; between them lies only the reading of that knowledge.
An identity that was executed is answered from its record, its receipt or a conflict, before it is judged: whatever the
clock or the handlers say now, nobody may be told that nothing was done. Were the order another one, whoever reaches the
port could learn what a listener holds, or have it act.

What freshness means depends on the door. A request is bound by its timestamp; what waited in a log or for an agent may
be as old as it is, and its expiry and sequence say whether it still counts. A result is the truth about an effect:
with a wrong clock it is taken and marked, never refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias
from uuid import UUID

from waybill.contracts.baseline import BaselinePart
from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import CONTENT_TYPE, Envelope, GapResolution
from waybill.contracts.envelope_reader import parse
from waybill.contracts.problem import Problem
from waybill.contracts.status_query import StatusQuery
from waybill.crypto.verifying import DEFAULT_TOLERANCE, RefuseReason, SignatureHeaders, VerificationKeys, verify
from waybill.crypto.verifying import Refuse as SignatureRefused
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.core.dedup import Conflict, Identity, Repeat, Stored, decide_repeat
from waybill.listener.core.policy import Rules, blocked
from waybill.listener.core.sequencing import Told, check_turn

__all__ = [
    "ANY_TYPE",
    "Admit",
    "Arrival",
    "Believed",
    "BelievedResult",
    "Binding",
    "Capability",
    "Check",
    "Door",
    "Lane",
    "Message",
    "Refusal",
    "Standing",
    "Terms",
    "admit",
    "believe",
    "believe_result",
    "id_of",
    "is_key_missing",
    "judge_known",
]

#: The handler of every command type that has none of its own.
ANY_TYPE: Final = "*"

Message: TypeAlias = Envelope | GapResolution | StatusQuery | BaselinePart


class Check(StrEnum):
    """What a refusal failed, in the order in which it is looked at."""

    #: The signature, or what was signed is no envelope.
    SIGNATURE = "signature"
    #: Another's, or too late.
    TENANT = "tenant"
    #: Nobody here can do it.
    CAPABILITY = "capability"
    #: The identity is taken by something else, or it is not its turn.
    SEQUENCE = "sequence"
    #: It must not be done here.
    POLICY = "policy"


class Door(StrEnum):
    """How something came in; says what freshness means."""

    #: A request: its timestamp must lie within the tolerance.
    HTTP = "http"
    #: A Kafka topic: expiry and sequence decide.
    KAFKA = "kafka"
    #: An agent that pulled it and may have been offline: as for a topic.
    AGENT = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """What a handler declares it can do; None accepts any."""

    name: str | None = None
    #: Lowest and highest version, inclusive.
    versions: tuple[int, int] | None = None

    def serves(self, envelope: Envelope) -> bool:
        """Whether an envelope demands no more than this."""
        if self.name is not None and self.name != envelope.capability:
            return False
        return self.versions is None or self.versions[0] <= envelope.capability_version <= self.versions[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """For whom a listener acts."""

    tenant: Tenant
    destination: DestinationName


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a listener takes."""

    binding: Binding
    #: By command type, one per handler.
    capabilities: Mapping[str, Capability]
    #: Between the signed timestamp and our clock, either way.
    tolerance: timedelta = DEFAULT_TOLERANCE
    #: What must not be done here although it was rightly ordered.
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What came in, as it came."""

    door: Door
    signed: SignatureHeaders
    content_type: str | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """It is not executed, and why."""

    check: Check
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """Signed by the tenant, for us."""

    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedResult:
    """Signed by the destination; what it reports is true whatever its clock says."""

    #: The key that verified; empty for a shared secret.
    key_id: str
    #: How far our clock is ahead of the signed timestamp.
    skew: timedelta
    #: The skew is over the limit: what depends on its times is set apart, and somebody is told (CK-1).
    is_quarantined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """How far an aggregate has come."""

    #: Everything up to here was executed or will not come in its turn.
    last: int
    #: What gap resolutions said, by sequence.
    told: Mapping[int, Told] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the store knows of a delivery and its aggregate."""

    stored: Stored | None
    #: None where sequences are not checked.
    lane: Lane | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Execute it."""


Verdict: TypeAlias = Admit | Repeat | Refusal


def believe(arrival: Arrival, keys: VerificationKeys, terms: Terms, now: datetime) -> Believed | Refusal:
    """Run the checks that need no store: the signature, and for whom it was made.

    Args:
        arrival: as it came.
        keys: what is known of the tenant's keys.
        terms: for whom we act.
        now: UTC, from the listener's clock.
    """
    tolerance = terms.tolerance if arrival.door is Door.HTTP else None
    verdict = verify(arrival.signed, arrival.body, keys, now, tolerance)
    if isinstance(verdict, SignatureRefused):
        return _refuse(Check.SIGNATURE, Problem(code=ErrorCode.AUTH, reason=verdict.reason.value))
    if (arrival.content_type or "").partition(";")[0].strip().lower() != CONTENT_TYPE:
        detail = f"expected {CONTENT_TYPE}"
        problem = Problem(code=ErrorCode.VALIDATION, reason="content_type", detail=detail, status=415)
        return _refuse(Check.SIGNATURE, problem)
    try:
        message = parse(arrival.body)
    except ContractError as error:
        return _refuse(Check.SIGNATURE, Problem(code=ErrorCode.VALIDATION, reason="envelope", detail=str(error)))
    if str(id_of(message)) != arrival.signed.webhook_id:
        problem = Problem(code=ErrorCode.VALIDATION, reason="id_mismatch", detail="webhook-id is not the body's id")
        return _refuse(Check.SIGNATURE, problem)
    if foreign := _check_binding(message, terms.binding):
        return _refuse(Check.TENANT, foreign)
    return Believed(message=message)


def believe_result(
    signed: SignatureHeaders, body: bytes, keys: VerificationKeys, now: datetime, limit: timedelta = DEFAULT_TOLERANCE
) -> BelievedResult | Refusal:
    """Decide whether a result was signed by its destination; a clock that is wrong marks it and refuses nothing.

    Args:
        signed: the signature as it came with the result.
        body: the raw bytes.
        keys: of the task's destination, and of no other.
        now: UTC, from our clock.
        limit: more skew than this quarantines, either way.
    """
    verdict = verify(signed, body, keys, now, None)
    if isinstance(verdict, SignatureRefused):
        return _refuse(Check.SIGNATURE, Problem(code=ErrorCode.AUTH, reason=verdict.reason.value))
    assert signed.timestamp is not None
    skew = timedelta(seconds=now.timestamp() - int(signed.timestamp))
    return BelievedResult(key_id=verdict.key_id, skew=skew, is_quarantined=abs(skew) > limit)


def is_key_missing(refusal: Refusal) -> bool:
    """Whether a newer key could turn the refusal: worth looking for one before it is answered."""
    return refusal.problem.reason in {RefuseReason.NO_USABLE_KEY, RefuseReason.SIGNATURE_MISMATCH}


def admit(envelope: Envelope, identity: Identity, terms: Terms, standing: Standing, now: datetime) -> Verdict:
    """Run the checks on a believed command, in the light of what the store knows.

    Args:
        envelope: as `believe` returned it.
        identity: what it is recognised by.
        terms: what this listener takes.
        standing: read under the lock that the execution will hold.
        now: UTC, from the listener's clock.

    Returns:
        What the record says of an identity that was executed, whatever else is wrong now; else the first refusal,
        or Admit.
    """
    if standing.stored is not None:
        return judge_known(standing.stored, identity)
    if envelope.expires_at <= now:
        problem = Problem(code=ErrorCode.POLICY_BLOCK, reason="expired", detail="the command's time is over")
        return _refuse(Check.TENANT, problem)
    if incapable := _check_capability(envelope, terms.capabilities):
        return _refuse(Check.CAPABILITY, incapable)
    if standing.lane is not None:
        lane = standing.lane
        if out_of_turn := check_turn(envelope.sequence, envelope.delivery_id, lane.last, lane.told):
            return _refuse(Check.SEQUENCE, out_of_turn)
    if block := terms.rules.judge(envelope, now):
        return _refuse(Check.POLICY, blocked(block))
    return Admit()


def judge_known(stored: Stored, identity: Identity) -> Repeat | Refusal:
    """Answer an identity that was executed: the same thing is a repeat, anything else a conflict (GW-4, GW-5)."""
    known = decide_repeat(stored, identity)
    return _refuse(Check.SEQUENCE, known.problem) if isinstance(known, Conflict) else known


def id_of(message: Message) -> UUID:
    """Return the id a message was signed under."""
    match message:
        case StatusQuery():
            return message.query_id
        case GapResolution():
            return message.resolution_id
        case BaselinePart():
            return message.part_id
        case Envelope():
            return message.delivery_id


def _refuse(check: Check, problem: Problem) -> Refusal:
    return Refusal(check=check, problem=problem)


def _check_binding(message: Message, binding: Binding) -> Problem | None:
    if message.tenant != binding.tenant:
        return Problem(code=ErrorCode.AUTHZ, reason="tenant", detail="signed for another tenant")
    if message.destination != binding.destination:
        return Problem(code=ErrorCode.AUTHZ, reason="destination", detail="signed for another destination")
    return None


def _check_capability(envelope: Envelope, capabilities: Mapping[str, Capability]) -> Problem | None:
    capability = capabilities.get(envelope.command_type) or capabilities.get(ANY_TYPE)
    if capability is None:
        detail = "no handler for this command type"
        return Problem(code=ErrorCode.PERMANENT_UNSUPPORTED, reason="command_type", detail=detail)
    if not capability.serves(envelope):
        detail = "this listener does not declare the demanded capability at the demanded version"
        return Problem(code=ErrorCode.PERMANENT_UNSUPPORTED, reason="capability", detail=detail)
    return None
