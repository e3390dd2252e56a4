"""What the same bytes under the same key may do, and what makes them the same."""

from datetime import UTC, datetime, timedelta

import pytest

from waybill.contracts.codes import ErrorCode
from waybill.kernel.errors import ConfigError, RefusedError
from waybill.kernel.ids import Tenant
from waybill.outbox import Rule as OutboxRule
from waybill.submission.core.reading import Form
from waybill.submission.core.refusals import by_outbox
from waybill.submission.core.resubmission import KEPT, body_digest, read_rule, submission_id

AT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.requirement("GW-16")
@pytest.mark.parametrize(
    ("rule", "after", "allowed"),
    [
        ("never", timedelta(0), False),
        ("within 1h", HOUR, True),
        ("within 1h", HOUR + timedelta(milliseconds=1), False),
        ("always", KEPT, True),
    ],
)
def test_a_rule_says_who_answers(rule: str, after: timedelta, allowed: bool):
    assert read_rule(rule).allows(AT, AT + after) is allowed


@pytest.mark.parametrize("text", ["never", "always", "within 24h", "within 90d"])
def test_a_rule_is_written_as_it_is_read(text: str):
    assert read_rule(str(read_rule(text))) == read_rule(text)


@pytest.mark.parametrize("text", ["", "sometimes", "within", "within 5", "always 5d", "within 91d"])
def test_what_is_no_rule_is_wrong_input(text: str):
    with pytest.raises(ConfigError, match="within"):
        read_rule(text)


def test_a_submission_is_told_apart_by_tenant_principal_and_key():
    places = [("a", "b", "c"), ("b", "b", "c"), ("a", "c", "c"), ("a", "b", "d"), ("a", "b", "b/c")]

    ids = {submission_id(Tenant(tenant), principal, key) for tenant, principal, key in places}

    assert len(ids) == len(places)
    assert submission_id(Tenant("a"), "b", "c") in ids


def test_a_batch_of_one_is_another_body():
    assert body_digest(Form.SINGLE, b"{}") != body_digest(Form.BATCH, b"{}")
    assert body_digest(Form.SINGLE, b"{}") != body_digest(Form.SINGLE, b"{} ")


@pytest.mark.parametrize("rule", [*OutboxRule, "several_outboxes"])
def test_whatever_the_outbox_refuses_is_a_refusal_of_the_client(rule: str):
    problem = by_outbox(RefusedError("no", rule=rule)).problem

    assert problem.reason == rule
    assert 400 <= problem.status < 500
    assert problem.code in {ErrorCode.VALIDATION, ErrorCode.POLICY_BLOCK}
