"""The one verification, as one table: what is wrong, and which check, code and reason that is answered with."""

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from waybill.contracts.codes import ErrorCode
from waybill.contracts.command import Command
from waybill.contracts.envelope import CONTENT_TYPE, Envelope, Resolution, render
from waybill.contracts.envelope_reader import parse
from waybill.contracts.problem import Problem
from waybill.crypto.keys import Algorithm, KeyRecord, Secret, jwks_document
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import SignatureHeaders, VerificationKeys
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.core.claims import claim_of
from waybill.listener.core.dedup import Repeat, Stored
from waybill.listener.core.holding import Bounds, Hold, hold, release
from waybill.listener.core.policy import LegalHold, Rules
from waybill.listener.core.sequencing import Told
from waybill.listener.core.verification import (
    ANY_TYPE,
    Admit,
    Arrival,
    Believed,
    BelievedResult,
    Binding,
    Capability,
    Check,
    Door,
    Lane,
    Refusal,
    Standing,
    Terms,
    admit,
    believe,
    believe_result,
    is_key_missing,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CRM = DestinationName("crm")
HOUR = timedelta(hours=1)
MakeCommand = Callable[..., Command]

STRANGER = KeyRecord(
    key_id="acme-20260101-00000009",
    algorithm=Algorithm.ED25519,
    secret=Secret(bytes(range(2, 34))),
    not_before=datetime(2020, 1, 1, tzinfo=UTC),
    not_after=None,
)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One delivery, number 5 of its aggregate, and everything around it; each field is one thing that can be wrong."""

    door: Door = Door.HTTP
    #: The signer's clock minus ours.
    clock: timedelta = timedelta(0)
    is_forged: bool = False
    has_signature: bool = True
    content_type: str | None = CONTENT_TYPE
    is_torn: bool = False
    signed_id: str | None = None
    tenant: str = "acme"
    destination: str = "crm"
    seconds_left: float = 60
    capabilities: dict[str, Capability] = field(default_factory=lambda: {ANY_TYPE: Capability()})
    #: What was executed under its id: nothing, itself, or another body.
    executed: str = ""
    last: int | None = None
    told: dict[int, Told] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)

    def judge(self, command: Command, key: KeyRecord) -> str:
        """Return what becomes of it: `admitted`, `repeat`, or check, code and reason of the refusal."""
        command = replace(command, expires_at=NOW + timedelta(seconds=self.seconds_left))
        body = render(command, CRM)
        envelope = parse(body)
        assert isinstance(envelope, Envelope)
        body = body[:-1] if self.is_torn else body
        webhook_id, stamp = self.signed_id or str(envelope.delivery_id), int((NOW + self.clock).timestamp())
        signature = Signer([STRANGER if self.is_forged else key]).sign(webhook_id, stamp, body)
        signed = SignatureHeaders(
            webhook_id=webhook_id, timestamp=str(stamp), signature=signature if self.has_signature else None
        )
        terms = Terms(
            binding=Binding(tenant=Tenant(self.tenant), destination=DestinationName(self.destination)),
            capabilities=self.capabilities,
            rules=self.rules,
        )
        arrival = Arrival(door=self.door, signed=signed, content_type=self.content_type, body=body)
        found = believe(arrival, VerificationKeys.from_jwks(jwks_document([key])), terms, NOW)
        if isinstance(found, Refusal):
            return _shown(found)
        assert found == Believed(message=envelope)
        identity = claim_of(envelope, body, NOW).identity
        known = replace(identity, body_digest=b"other") if self.executed == "other" else identity
        stored = Stored(identity=known, receipt=b"{}") if self.executed else None
        lane = Lane(last=self.last, told=self.told) if self.last is not None else None
        verdict = admit(envelope, identity, terms, Standing(stored=stored, lane=lane), NOW)
        if isinstance(verdict, Refusal):
            return _shown(verdict)
        assert isinstance(verdict, Admit | Repeat)
        return "repeat" if isinstance(verdict, Repeat) else "admitted"


def _shown(refusal: Refusal) -> str:
    problem = refusal.problem
    return f"{refusal.check}: {problem.status} {problem.code} {problem.reason}"


@pytest.fixture
def command(make_command: MakeCommand) -> Command:
    """Number 5 of its aggregate; demands `erase` at version 2."""
    return make_command(sequences={CRM: 5}, capability="erase", capability_version=2)


ERASE = "subject.erase"
DEFERRED = {5: Told(delivery_id=uuid.UUID(int=1), resolution=Resolution.DEFERRED)}
HELD = Rules(legal_holds=(LegalHold(aggregates=frozenset({"subject/*"}), reference="case-1"),))
TABLE: list[tuple[dict[str, Any], str]] = [
    ({}, "admitted"),
    # 1. Signature, and the envelope that was signed.
    ({"has_signature": False}, "signature: 401 AUTH missing_header"),
    ({"is_forged": True}, "signature: 401 AUTH signature_mismatch"),
    ({"content_type": "application/json"}, "signature: 415 VALIDATION content_type"),
    ({"content_type": None}, "signature: 415 VALIDATION content_type"),
    ({"content_type": f"{CONTENT_TYPE.upper()}; charset=utf-8"}, "admitted"),
    ({"is_torn": True}, "signature: 400 VALIDATION envelope"),
    ({"signed_id": "another"}, "signature: 400 VALIDATION id_mismatch"),
    # Freshness: a request has a window on both sides, what waited elsewhere has none.
    ({"clock": -timedelta(minutes=5)}, "admitted"),
    ({"clock": -timedelta(minutes=5, seconds=1)}, "signature: 401 AUTH timestamp_too_old"),
    ({"clock": timedelta(minutes=5, seconds=1)}, "signature: 401 AUTH timestamp_too_new"),
    ({"door": Door.KAFKA, "clock": -timedelta(hours=2)}, "admitted"),
    ({"door": Door.AGENT, "clock": -timedelta(days=3)}, "admitted"),
    ({"door": Door.KAFKA, "clock": -timedelta(hours=2), "is_forged": True}, "signature: 401 AUTH signature_mismatch"),
    # 2. Tenant and destination; then its time.
    ({"tenant": "other"}, "tenant: 403 AUTHZ tenant"),
    ({"tenant": "ACME"}, "tenant: 403 AUTHZ tenant"),
    ({"destination": "mail"}, "tenant: 403 AUTHZ destination"),
    ({"tenant": "other", "destination": "mail"}, "tenant: 403 AUTHZ tenant"),
    ({"seconds_left": 0.001}, "admitted"),
    # The instant of expiry itself is too late.
    ({"seconds_left": 0}, "tenant: 422 POLICY_BLOCK expired"),
    ({"door": Door.KAFKA, "seconds_left": 0}, "tenant: 422 POLICY_BLOCK expired"),
    # 3. Capability and version.
    ({"capabilities": {}}, "capability: 422 PERMANENT_UNSUPPORTED command_type"),
    ({"capabilities": {"subject.export": Capability()}}, "capability: 422 PERMANENT_UNSUPPORTED command_type"),
    ({"capabilities": {ERASE: Capability(name="erase", versions=(1, 2))}}, "admitted"),
    ({"capabilities": {ERASE: Capability(versions=(2, 9))}}, "admitted"),
    ({"capabilities": {ERASE: Capability(versions=(1, 1))}}, "capability: 422 PERMANENT_UNSUPPORTED capability"),
    ({"capabilities": {ERASE: Capability(versions=(3, 9))}}, "capability: 422 PERMANENT_UNSUPPORTED capability"),
    # A handler of its own stands before the one for all.
    (
        {"capabilities": {ANY_TYPE: Capability(), ERASE: Capability(name="export")}},
        "capability: 422 PERMANENT_UNSUPPORTED capability",
    ),
    # 4. Sequence, replay, gap.
    ({"executed": "other"}, "sequence: 409 VERSION_CONFLICT body_differs"),
    ({"last": 4}, "admitted"),
    ({"last": 3}, "sequence: 425 SOURCE_UNAVAILABLE gap"),
    ({"door": Door.KAFKA, "last": 3}, "sequence: 425 SOURCE_UNAVAILABLE gap"),
    ({"last": 5}, "sequence: 409 VERSION_CONFLICT older_sequence"),
    ({"last": 5, "told": DEFERRED}, "sequence: 409 VERSION_CONFLICT older_sequence"),
    # 5. Policy.
    ({"rules": HELD}, "policy: 422 POLICY_BLOCK legal_hold"),
    ({"rules": HELD, "executed": "itself"}, "repeat"),
    # What was executed is reported, whatever else is wrong with it now.
    ({"executed": "itself"}, "repeat"),
    ({"executed": "itself", "seconds_left": -60, "capabilities": {}, "last": 9}, "repeat"),
    ({"executed": "other", "seconds_left": -60, "capabilities": {}}, "sequence: 409 VERSION_CONFLICT body_differs"),
    ({"executed": "itself", "is_forged": True}, "signature: 401 AUTH signature_mismatch"),
    ({"executed": "itself", "tenant": "other"}, "tenant: 403 AUTHZ tenant"),
]


@pytest.mark.requirement("DC-8", "DC-9", "DC-10", "DC-11", "DC-12", "DC-13", "DC-14", "GW-19")
@pytest.mark.parametrize(("changes", "answer"), TABLE, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_named_by_its_check(
    changes: dict[str, Any], answer: str, command: Command, signing_key: KeyRecord
) -> None:
    assert Scene(**changes).judge(command, signing_key) == answer


#: One fault for each check, in the order of the checks.
FAULTS: list[tuple[Check, dict[str, Any]]] = [
    (Check.SIGNATURE, {"is_forged": True}),
    (Check.TENANT, {"tenant": "other"}),
    (Check.CAPABILITY, {"capabilities": {}}),
    (Check.SEQUENCE, {"last": 2}),
    (Check.POLICY, {"rules": HELD}),
]


@pytest.mark.requirement("DC-15")
def test_of_several_faults_the_first_check_is_named(command: Command, signing_key: KeyRecord) -> None:
    for count in range(1, len(FAULTS) + 1):
        for chosen in itertools.combinations(FAULTS, count):
            changes = {name: value for _, fault in chosen for name, value in fault.items()}

            answer = Scene(**changes).judge(command, signing_key)

            assert answer.partition(":")[0] == chosen[0][0], changes


def test_only_a_key_that_may_be_newer_is_worth_a_look() -> None:
    def refusal(reason: str) -> Refusal:
        return Refusal(check=Check.SIGNATURE, problem=Problem(code=ErrorCode.AUTH, reason=reason))

    assert [is_key_missing(refusal(reason)) for reason in ("no_usable_key", "signature_mismatch")] == [True, True]
    assert [is_key_missing(refusal(reason)) for reason in ("missing_header", "timestamp_too_old", "envelope")] == [
        False,
        False,
        False,
    ]


@pytest.mark.requirement("CK-1")
@pytest.mark.parametrize(
    ("clock", "is_quarantined"),
    [
        (timedelta(0), False),
        (timedelta(minutes=5), False),
        (-timedelta(minutes=5), False),
        (HOUR, True),
        (-HOUR, True),
        (-timedelta(days=400), True),
    ],
)
def test_a_result_with_a_wrong_clock_is_taken_and_marked(
    clock: timedelta, is_quarantined: bool, signing_key: KeyRecord
) -> None:
    stamp = int((NOW + clock).timestamp())
    signed = SignatureHeaders(
        webhook_id="r1", timestamp=str(stamp), signature=Signer([signing_key]).sign("r1", stamp, b"result")
    )
    keys = VerificationKeys.from_jwks(jwks_document([signing_key]))

    taken = believe_result(signed, b"result", keys, NOW)
    forged = believe_result(signed, b"Result", keys, NOW)

    assert taken == BelievedResult(key_id=signing_key.key_id, skew=-clock, is_quarantined=is_quarantined)
    assert isinstance(forged, Refusal)
    assert _shown(forged) == "signature: 401 AUTH signature_mismatch"


@pytest.mark.requirement("DC-13")
def test_what_comes_too_early_from_a_topic_is_held_and_released_in_order() -> None:
    bounds = Bounds(max_count=3, max_age=HOUR)
    held = Hold()
    for number, minutes in ((7, 0), (6, 1), (9, 2)):
        kept = hold(held, number, bounds, NOW + timedelta(minutes=minutes))
        assert kept is not None
        held = kept

    assert hold(held, 7, bounds, NOW + HOUR) == held  # a copy keeps its place and its age
    assert hold(held, 8, bounds, NOW) is None  # no more than the bound
    assert release(held, 4) == ()
    assert release(held, 5) == (6, 7)
    assert release(held, 7) == (6, 7)
    assert release(held.without(6, 7), 8) == (9,)
    assert held.overdue(bounds, NOW + HOUR) == ()
    assert held.overdue(bounds, NOW + HOUR + timedelta(minutes=1, seconds=1)) == (6, 7)
