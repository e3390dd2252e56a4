"""Baselines in a real PostgreSQL: what the database itself refuses, whoever asks for it."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from fixtures.fix_stack import FreshDatabase

from waybill.cli.migrate import migrate_all
from waybill.delivery.baseline.log import BaselineLog, Proposal, approved_parts
from waybill.delivery.core.controls.standing import Decider
from waybill.kernel.errors import ConfigError, RefusedError

pytestmark = pytest.mark.postgres
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIGEST = "a" * 64
PROPOSAL = Proposal(
    baseline_id=uuid.UUID(int=1),
    tenant="acme",
    destination="crm",
    nonce="n1",
    digest=DIGEST,
    data=(b'{"lanes":1}', b'{"lanes":2}'),
    lanes=2,
    config_version=1,
    expires_at=NOW + timedelta(hours=4),
)
ID = str(PROPOSAL.baseline_id)


def person(name: str, at: datetime = NOW) -> Decider:
    return Decider(at=at, by=name, reason="restored from the backup of noon")


@pytest.fixture
def connection(fresh_database: FreshDatabase) -> Iterator[psycopg.Connection[Any]]:
    migrate_all(fresh_database.dsn())
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        yield connection


@pytest.fixture
def log(connection: psycopg.Connection[Any]) -> BaselineLog:
    log = BaselineLog(connection)
    log.propose(PROPOSAL, person("ann"))
    return log


@pytest.mark.requirement("DC-13")
@pytest.mark.parametrize("approver", ["ann", "Ann"])
def test_nobody_approves_what_they_proposed(log: BaselineLog, approver: str) -> None:
    with pytest.raises(RefusedError, match="somebody else"):
        log.approve(log.find(ID), DIGEST, person(approver))

    assert log.find(ID)["approved_by"] is None


def test_only_the_digest_that_was_proposed_is_approved(log: BaselineLog) -> None:
    with pytest.raises(RefusedError, match="not that of this proposal"):
        log.approve(log.find(ID), "b" * 64, person("ben"))

    assert log.find(ID)["approved_by"] is None


@pytest.mark.requirement("DC-13")
def test_what_nobody_approved_is_not_sent(log: BaselineLog) -> None:
    with pytest.raises(RefusedError, match="nobody approved"):
        approved_parts(log, log.find(ID), NOW)
    with pytest.raises(RefusedError, match="nobody approved"):
        log.sent(PROPOSAL.baseline_id, 1, ("applied", ""), "ann", NOW)

    assert log.sendings(PROPOSAL.baseline_id) == []


def test_what_was_approved_is_sent_as_it_was_proposed_while_its_time_lasts(log: BaselineLog) -> None:
    log.approve(log.find(ID), DIGEST, person("ben"))

    assert list(approved_parts(log, log.find(ID), NOW)) == [(1, PROPOSAL.data[0]), (2, PROPOSAL.data[1])]
    with pytest.raises(RefusedError, match="time is over"):
        approved_parts(log, log.find(ID), PROPOSAL.expires_at)


def test_it_is_approved_once_and_in_time(log: BaselineLog) -> None:
    with pytest.raises(RefusedError, match="time is over"):
        log.approve(log.find(ID), DIGEST, person("ben", PROPOSAL.expires_at))
    log.approve(log.find(ID), DIGEST, person("ben"))
    with pytest.raises(RefusedError, match="approved before"):
        log.approve(log.find(ID), DIGEST, person("cat"))

    assert log.find(ID)["approved_by"] == "ben"


def test_all_of_it_is_told_afterwards(log: BaselineLog) -> None:
    log.approve(log.find(ID), DIGEST, person("ben"))
    log.sent(PROPOSAL.baseline_id, 1, ("staged", ""), "ann", NOW)
    log.sent(PROPOSAL.baseline_id, 2, ("refused", "409 VERSION_CONFLICT baseline_nonce"), "ann", NOW)
    log.propose(replace(PROPOSAL, baseline_id=uuid.uuid4(), tenant="globex"), person("ann"))

    (row,) = log.list("acme", "crm", 10)

    assert (row["proposed_by"], row["approved_by"], row["last_outcome"]) == ("ann", "ben", "refused")
    assert [(each["part"], each["outcome"]) for each in log.sendings(row["baseline_id"])] == [
        (1, "staged"),
        (2, "refused"),
    ]
    assert len(log.list(None, None, 10)) == 2


@pytest.mark.parametrize("table", ["baseline", "baseline_part", "baseline_approval", "baseline_sending"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE delivery.{} SET baseline_id = gen_random_uuid()",
        "DELETE FROM delivery.{}",
        "TRUNCATE delivery.{} CASCADE",
    ],
)
def test_nothing_of_it_is_ever_changed(
    log: BaselineLog, connection: psycopg.Connection[Any], table: str, statement: str
) -> None:
    log.approve(log.find(ID), DIGEST, person("ben"))
    log.sent(PROPOSAL.baseline_id, 1, ("staged", ""), "ann", NOW)

    with pytest.raises(psycopg.errors.RestrictViolation, match="history"):
        connection.execute(statement.format(table).encode())


@pytest.mark.parametrize("wrong", ["7", str(uuid.UUID(int=9))])
def test_one_that_is_not_there_is_said_so(log: BaselineLog, wrong: str) -> None:
    with pytest.raises(ConfigError, match="baseline list"):
        log.find(wrong)
