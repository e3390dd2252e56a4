"""The one reviewed table, written out a second time: every status, failure, broker and database error and its code."""

from datetime import timedelta
from typing import Final

import psycopg.errors
import pytest
from confluent_kafka import KafkaError

from waybill.contracts.codes import RETRIED, ErrorCode, Phase
from waybill.contracts.driver_errors import (
    BROKER,
    DATABASE,
    NO_POSITION,
    NOT_OWNER,
    broker_code,
    database_code,
)
from waybill.contracts.fabric import Profile, RetryPolicy
from waybill.delivery.core.classify import CLASSES, FAILURES, OTHER, STATUSES, Failure, Rule, Verdict, rule_for
from waybill.delivery.core.repeats import RepeatRule
from waybill.delivery.core.retry import Again, History, decide
from waybill.kernel.clock import parse_instant

E = ErrorCode
NOW = parse_instant("2026-01-01T00:00:00Z")
DURABLE = RepeatRule(profile=Profile.DURABLE_IDEMPOTENT, max_attempts=1, max_age=timedelta(0), not_done=frozenset())
ACTED: Final = True

#: status → (code, it may have acted). Reviewed by hand; a change of the code's table is a change here.
REVIEWED: Final[dict[int, tuple[ErrorCode, bool]]] = {
    202: (E.PERMANENT_UNSUPPORTED, ACTED),
    400: (E.VALIDATION, False),
    401: (E.AUTH, False),
    403: (E.AUTHZ, False),
    404: (E.NOT_FOUND, False),
    405: (E.PERMANENT_UNSUPPORTED, False),
    407: (E.AUTH, False),
    408: (E.TRANSIENT_NETWORK, False),
    409: (E.VERSION_CONFLICT, False),
    410: (E.PERMANENT_UNSUPPORTED, False),
    411: (E.VALIDATION, False),
    412: (E.VERSION_CONFLICT, False),
    413: (E.VALIDATION, False),
    414: (E.VALIDATION, False),
    415: (E.VALIDATION, False),
    421: (E.PERMANENT_UNSUPPORTED, False),
    422: (E.VALIDATION, False),
    425: (E.SOURCE_UNAVAILABLE, False),
    428: (E.VERSION_CONFLICT, False),
    429: (E.RATE_LIMIT, False),
    431: (E.VALIDATION, False),
    451: (E.POLICY_BLOCK, False),
    500: (E.SOURCE_UNAVAILABLE, ACTED),
    502: (E.TRANSIENT_NETWORK, ACTED),
    503: (E.SOURCE_UNAVAILABLE, False),
    504: (E.TRANSIENT_NETWORK, ACTED),
}
REVIEWED_CLASSES: Final = {
    1: (E.VALIDATION, False),
    2: (E.VALIDATION, ACTED),
    3: (E.VALIDATION, False),
    4: (E.PERMANENT_UNSUPPORTED, False),
    5: (E.SOURCE_UNAVAILABLE, ACTED),
}
REVIEWED_FAILURES: Final = {
    Failure.CONNECT: (E.TRANSIENT_NETWORK, Phase.BEFORE_SENDING),
    Failure.CONNECT_TIMEOUT: (E.TRANSIENT_NETWORK, Phase.BEFORE_SENDING),
    Failure.POOL_TIMEOUT: (E.TRANSIENT_NETWORK, Phase.BEFORE_SENDING),
    Failure.REFUSED: (E.POLICY_BLOCK, Phase.BEFORE_SENDING),  # where Waybill does not go
    Failure.UNBUILDABLE: (E.VALIDATION, Phase.BEFORE_SENDING),
    Failure.WRITE: (E.TRANSIENT_NETWORK, Phase.DURING_SENDING),
    Failure.READ: (E.TRANSIENT_NETWORK, Phase.DURING_SENDING),
    Failure.TIMEOUT: (E.TRANSIENT_NETWORK, Phase.DURING_SENDING),
    Failure.ANSWER: (E.VALIDATION, Phase.DURING_SENDING),
    Failure.UNKNOWN: (E.AMBIGUOUS_RESULT, Phase.DURING_SENDING),
}


@pytest.mark.requirement("ET-4", "GW-9")
def test_every_status_has_the_code_that_was_reviewed() -> None:
    def told(rules: dict[int, Rule]) -> dict[int, tuple[ErrorCode, bool]]:
        return {key: (rule.code, rule.may_have_acted) for key, rule in rules.items()}

    assert told(STATUSES) == REVIEWED
    assert told(CLASSES) == REVIEWED_CLASSES
    assert all(rule_for(status) in {*STATUSES.values(), *CLASSES.values()} for status in range(100, 600))
    assert {rule_for(status) for status in (-1, 0, 99, 600, 999, 10_000)} == {OTHER}
    assert OTHER.code not in RETRIED


@pytest.mark.requirement("ET-4", "AM-5")
def test_every_failure_of_transport_has_the_code_and_phase_that_were_reviewed() -> None:
    assert {failure: (rule.code, rule.phase) for failure, rule in FAILURES.items()} == REVIEWED_FAILURES


@pytest.mark.requirement("ET-2", "ET-3")
@pytest.mark.parametrize("code", ErrorCode)
def test_of_the_fourteen_codes_only_three_are_attempted_again(code: ErrorCode) -> None:
    history = History(
        delivery_id="d",
        attempts=0,
        sent=False,
        may_have_acted=False,
        expires_at=parse_instant("2026-01-02T00:00:00Z"),
        is_row=False,
        fresh_from=NOW,
    )

    step = decide(RetryPolicy(), DURABLE, history, Verdict(code=code, phase=Phase.AFTER_SENDING), NOW)

    is_transient = code in {E.RATE_LIMIT, E.TRANSIENT_NETWORK, E.SOURCE_UNAVAILABLE}
    assert isinstance(step, Again) == is_transient


@pytest.mark.requirement("ET-4")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("_TRANSPORT", E.TRANSIENT_NETWORK),
        ("_ALL_BROKERS_DOWN", E.TRANSIENT_NETWORK),
        ("_TIMED_OUT", E.TRANSIENT_NETWORK),
        ("NOT_COORDINATOR", E.SOURCE_UNAVAILABLE),
        ("NOT_ENOUGH_REPLICAS", E.SOURCE_UNAVAILABLE),
        ("CONCURRENT_TRANSACTIONS", E.SOURCE_UNAVAILABLE),
        ("THROTTLING_QUOTA_EXCEEDED", E.RATE_LIMIT),
        ("SASL_AUTHENTICATION_FAILED", E.AUTH),
        ("TOPIC_AUTHORIZATION_FAILED", E.AUTHZ),
        ("UNKNOWN_TOPIC_OR_PART", E.NOT_FOUND),
        ("ILLEGAL_GENERATION", E.VERSION_CONFLICT),
        ("PRODUCER_FENCED", E.VERSION_CONFLICT),
        ("POLICY_VIOLATION", E.POLICY_BLOCK),
        ("MSG_SIZE_TOO_LARGE", E.VALIDATION),
        ("UNSUPPORTED_VERSION", E.PERMANENT_UNSUPPORTED),
        ("_FATAL", E.AMBIGUOUS_RESULT),
        ("SOMETHING_OF_A_LATER_KAFKA", E.AMBIGUOUS_RESULT),  # nobody reviewed it: not tried again
    ],
)
def test_a_broker_error_has_one_code(name: str, code: ErrorCode) -> None:
    assert broker_code(name) is code


@pytest.mark.requirement("ET-4")
def test_every_broker_error_of_the_table_is_one_the_library_knows() -> None:
    assert {name for name in BROKER if not isinstance(getattr(KafkaError, name, None), int)} == set()
    assert {BROKER[name] for name in NOT_OWNER} == {E.VERSION_CONFLICT}
    assert {BROKER[name] for name in NO_POSITION} == {E.NOT_FOUND}


@pytest.mark.requirement("ET-4", "ET-3")
@pytest.mark.parametrize(
    ("state", "code"),
    [
        (None, E.TRANSIENT_NETWORK),  # nobody answered
        ("08006", E.TRANSIENT_NETWORK),
        ("57P01", E.SOURCE_UNAVAILABLE),  # shut down
        ("57014", E.SOURCE_UNAVAILABLE),  # statement time-out
        ("55P03", E.SOURCE_UNAVAILABLE),  # lock time-out
        ("53300", E.SOURCE_UNAVAILABLE),
        ("40001", E.SOURCE_UNAVAILABLE),
        ("40P01", E.SOURCE_UNAVAILABLE),
        ("25006", E.SOURCE_UNAVAILABLE),  # a standby
        ("25P03", E.SOURCE_UNAVAILABLE),
        ("25001", E.AMBIGUOUS_RESULT),
        ("28P01", E.AUTH),
        ("42501", E.AUTHZ),
        ("3D000", E.NOT_FOUND),
        ("42P01", E.SCHEMA_CHANGED),
        ("42601", E.VALIDATION),
        ("23505", E.VERSION_CONFLICT),
        ("23514", E.VALIDATION),
        ("22001", E.VALIDATION),
        ("0A000", E.PERMANENT_UNSUPPORTED),
        ("XX001", E.AMBIGUOUS_RESULT),
        ("F0000", E.AMBIGUOUS_RESULT),  # nobody reviewed it: not tried again
    ],
)
def test_a_database_error_has_one_code(state: str | None, code: ErrorCode) -> None:
    assert database_code(state) is code


@pytest.mark.requirement("ET-4")
def test_every_database_error_of_the_table_is_one_postgresql_knows() -> None:
    known = {
        state for found in vars(psycopg.errors).values() if isinstance(state := getattr(found, "sqlstate", None), str)
    }

    assert {state for state in DATABASE if state not in known | {each[:2] for each in known}} == set()
