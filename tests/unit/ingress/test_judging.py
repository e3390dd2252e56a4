"""An event as a command: what each attribute becomes, what is refused before the outbox is asked, and by which name."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from waybill.commandtypes import schema_uri
from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import (
    CommandTypeConfig,
    IngressConfig,
    OutboxConfig,
    PiiClass,
    SecretRef,
    TenantConfig,
    TypeVersion,
)
from waybill.delivery.ordered import Letter
from waybill.ingress.core.judging import ATTRIBUTES, PRINCIPAL, Wanted, judge, letter_for
from waybill.kernel.errors import InvariantBroken
from waybill.kernel.ids import NAME_PATTERN, Tenant
from waybill.outbox import CommandDraft, Rule
from waybill.outbox.core.rules import SQLSTATES
from waybill.submission.core.members import MEMBERS

ACME, NOW = Tenant("acme"), datetime(2026, 11, 30, 12, tzinfo=UTC)
SHOP = OutboxConfig(tenant=ACME, name="shop", dsn=SecretRef(env="X"), aggregate_types=("subject",))
TENANT = TenantConfig(name=ACME, outboxes=(SHOP,), ingress=IngressConfig(command_types=("subject.erase",)))
TYPED = replace(
    TENANT,
    command_types=(
        CommandTypeConfig(
            tenant=ACME,
            name="subject.erase",
            owner="team-erp",
            pii=PiiClass.NONE,
            description="",
            versions=(TypeVersion(version="v1.0", schema='{"type":"integer"}', example="1"),),
        ),
    ),
)
EVENT = {"specversion": "1.0", "id": "e-1", "source": "/erp", "type": "subject.erase", "subject": "subject/7"}
SECRET = "jane.doe@example.org"


def judged(data: bytes | None = b"1", under: TenantConfig = TENANT, **changes: str | None) -> Wanted | Letter:
    wanted: dict[str, str | None] = {**EVENT, **changes}
    headers = [(f"ce_{name}", text.encode()) for name, text in wanted.items() if text is not None]
    return judge(headers, data, under, NOW)


def taken(found: Wanted | Letter) -> Wanted:
    assert isinstance(found, Wanted), found
    return found


def test_each_attribute_becomes_what_a_submission_calls_it():
    draft = taken(
        judged(
            destinations="crm,erp", optional="erp", ttl="12h", operationid="op-1", requestid="r-1", requestsize="3",
            instructionversion="2", replaces="0199a0f0-0000-7000-8000-000000000001", dataschema="https://x.example/s",
            capability="erase", capabilityversion="2", legalversions="1..2", configversions="..3", datakeyid="k-1",
            traceparent=f"00-{'1' * 32}-{'2' * 16}-01", tenant="acme", time="2026-11-30T12:00:00Z", tracestate="a=b",
        )
    ).draft  # fmt: skip

    assert draft == CommandDraft(
        aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data=b"1", content_type="application/json",
        destinations=("crm", "erp"), optional=("erp",), ttl=timedelta(hours=12), operation_id="op-1", request_id="r-1",
        request_size=3, instruction_version=2, replaces=UUID("0199a0f0-0000-7000-8000-000000000001"),  # type: ignore[arg-type] # as read
        data_schema="https://x.example/s", capability="erase", capability_version=2, legal_versions="1..2",
        config_versions="..3", data_key_id="k-1", traceparent=f"00-{'1' * 32}-{'2' * 16}-01",
    )  # fmt: skip


def test_every_member_of_a_submission_has_an_attribute():
    assert set(ATTRIBUTES.values()) == MEMBERS.keys() - {"dataBase64"}
    assert all(name.isalnum() and name == name.lower() for name in ATTRIBUTES), "CloudEvents allows no other names"


def test_data_that_are_elsewhere_come_as_a_reference():
    draft = taken(judged(None, dataref="https://x.example/7", datadigest="sha256:" + "0" * 64)).draft

    assert (draft.data, draft.data_ref) == (b"", "https://x.example/7")


def test_an_expiry_is_the_time_that_is_left():
    assert taken(judged(expiresat="2026-11-30T14:00:00+01:00")).draft.ttl == timedelta(hours=1)


def test_the_same_event_is_the_same_submission_for_its_tenant_alone():
    other = replace(TENANT, name=Tenant("other"))

    assert taken(judged()).submission_id == taken(judged(time="2026-11-30T12:00:00Z")).submission_id
    assert len({taken(judged()).submission_id, taken(judged(id="e-2")).submission_id,
                taken(judged(source="/x")).submission_id, taken(judged(under=other)).submission_id}) == 4  # fmt: skip


def test_no_principal_of_an_api_has_this_name():
    assert not NAME_PATTERN.match(PRINCIPAL)


@pytest.mark.parametrize(
    ("found", "cause", "code"),
    [
        (judged(type=None), "missing_member", ErrorCode.VALIDATION),
        (judged(subject=SECRET), "malformed_member", ErrorCode.VALIDATION),
        (judged(ttl=SECRET), "malformed_member", ErrorCode.VALIDATION),
        (judged(requestsize="0"), "malformed_member", ErrorCode.VALIDATION),
        (judged(requestsize="1" * 5000), "malformed_member", ErrorCode.VALIDATION),
        (judged(destinations=f"crm,{SECRET}"), "malformed_member", ErrorCode.VALIDATION),
        (judged(subject_of=SECRET), "unknown_member", ErrorCode.VALIDATION),
        (judged(commandtype="subject.erase"), "unknown_member", ErrorCode.VALIDATION),
        (judged(destination="crm"), "unknown_member", ErrorCode.VALIDATION),  # misspelt: not ignored
        (judged(expiresat=SECRET), "malformed_member", ErrorCode.VALIDATION),
        (judged(expiresat="2026-11-30T14:00:00"), "malformed_member", ErrorCode.VALIDATION),
        (judged(expiresat="2026-12-01T00:00:00Z", ttl="1h"), "malformed_member", ErrorCode.VALIDATION),
        (judged(subject="order/7"), "foreign_aggregate_type", ErrorCode.VALIDATION),
        (judged(dataref="https://x.example/7"), "missing_member", ErrorCode.VALIDATION),  # and data
    ],
)
def test_what_is_refused_names_the_attribute_and_never_its_value(found: Wanted | Letter, cause: str, code: ErrorCode):
    assert isinstance(found, Letter), found
    assert (found.cause, found.code) == (cause, code)
    assert SECRET not in repr(found)


@pytest.mark.parametrize("rule", list(Rule))
def test_each_refusal_of_the_outbox_is_a_letter_with_its_rule(rule: Rule):
    state = next(state for state, each in SQLSTATES.items() if each is rule)

    letter = letter_for(state, taken(judged()))

    assert letter is not None
    assert (letter.cause, letter.aggregate) == (rule.value, "subject/7")


@pytest.mark.parametrize(
    ("found", "cause", "code"),
    [
        (judged(tenant=SECRET), "foreign_tenant", ErrorCode.AUTHZ),
        (judged(type="subject.hold"), "not_permitted", ErrorCode.AUTHZ),
        (judged(under=replace(TENANT, ingress=None)), "not_permitted", ErrorCode.AUTHZ),
        (judged(expiresat="2026-11-30T12:00:00Z"), "expired", ErrorCode.VALIDATION),
        (judged(b'{"mail":"%s"}' % SECRET.encode(), under=TYPED), "payload_invalid", ErrorCode.VALIDATION),
        (judged(b"1", under=TYPED, dataschema="waybill://acme/types/subject.erase/v7.0"), "unknown_type_version", ErrorCode.VALIDATION),
    ],
)  # fmt: skip
def test_what_is_refused_by_now_may_have_been_taken_before(found: Wanted | Letter, cause: str, code: ErrorCode):
    wanted = taken(found)

    letter = letter_for("objected", wanted)

    assert letter is not None
    assert (letter.cause, letter.code, letter.aggregate) == (cause, code, "subject/7")
    assert SECRET not in repr(letter)
    assert letter_for("repeated", wanted) is None


def test_an_event_that_is_held_against_the_catalogue_names_the_version():
    assert taken(judged(b"1", under=TYPED)).draft.data_schema == schema_uri(ACME, "subject.erase") + "v1.0"
    assert taken(judged(b"1", under=TYPED)).digest == taken(judged(b"1")).digest


@pytest.mark.parametrize(
    ("answer", "cause"),
    [("taken", None), ("repeated", None), ("reused", "event_reused"), ("unreadable", "malformed_field")],
)
def test_an_answer_is_a_letter_or_none(answer: str, cause: str | None):
    letter = letter_for(answer, taken(judged()))

    assert (letter.cause if letter else None) == cause


def test_an_answer_nobody_knows_stops_the_process():
    with pytest.raises(InvariantBroken):
        letter_for("perhaps", taken(judged()))
