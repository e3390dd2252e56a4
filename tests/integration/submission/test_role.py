"""The server's own role: with it everything works, and every statement it has no business with is refused."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import httpx
import psycopg
import pytest
from fixtures.fix_submission import SECOND, Api, erase, running
from fixtures.posted_results import by_another, post, result, signed
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from waybill.access import KeyRing, Scope
from waybill.access.signed_requests import forget_nonces
from waybill.cli.app import root
from waybill.client import RequestSigner
from waybill.crypto.keys import Algorithm, new_key
from waybill.infra.clock import SystemClock
from waybill.kernel.ids import Tenant
from waybill.submission.outboxes import open_pool

pytestmark = pytest.mark.postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Connection strings of the role."""

    control: str
    outbox: str


def provision(api: Api, *words: str) -> str:
    outbox = api.database.dsn("postgres")
    environ = {
        "WAYBILL_CONTROL_DSN": api.control_dsn,
        "WAYBILL_TEST_OUTBOX": outbox,
        "WAYBILL_TEST_NOWHERE": outbox,  # the server under test cannot reach this one, we can
    }
    done = CliRunner().invoke(root, ["api", "provision", *words], env=environ, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def login(api: Api) -> Iterator[Login]:
    role, password = f"api_{secrets.token_hex(4)}", secrets.token_hex(16)
    admin = {"control": api.control_dsn, "outbox": api.database.dsn("postgres")}
    provision(api, "--role", role)
    with closing(psycopg.connect(admin["outbox"], autocommit=True)) as owner:
        owner.execute(f"ALTER ROLE {role} LOGIN PASSWORD '{password}'".encode())
    yield Login(**{name: make_conninfo(dsn, user=role, password=password) for name, dsn in admin.items()})
    for dsn in admin.values():
        with closing(psycopg.connect(dsn, autocommit=True)) as owner:
            owner.execute(f"DROP OWNED BY {role}".encode())
    with closing(psycopg.connect(admin["outbox"], autocommit=True)) as owner:
        owner.execute(f"DROP ROLE {role}".encode())


def signer(api: Api) -> RequestSigner:
    pair = new_key(Algorithm.ED25519, Tenant("acme"), datetime.now(UTC))
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as control:
        made = KeyRing(control, SystemClock()).create(
            Tenant(api.database.tenant),
            "by-signature",
            frozenset({Scope.COMMANDS_SUBMIT}),
            lifetime=None,
            by="test",
            public_key=pair.public_bytes(),
        )
    return RequestSigner(made.record.key_id, pair.secret)


def test_the_api_does_all_its_work_as_its_own_role(api: Api, login: Login, fresh_subject: str):
    with running(login.control, login.outbox) as (at, process):
        mine = replace(api, url=at["url"], process=process)
        taken = mine.post(erase(fresh_subject), fresh_subject, who="both")
        again = mine.post(erase(fresh_subject), fresh_subject, who="both")
        other = mine.post(erase(fresh_subject, aggregate=f"article/{fresh_subject}"), f"{fresh_subject}-2", who="both")
        looks = [mine.get(path, "both").status_code for path in ("/v1/submissions", "/v1/deliveries")]
        forged = by_another(mine)
        posted = [post(mine, each).status_code for each in (forged, signed(mine, result(mine)))]
        by_signature = httpx.get(f"{mine.url}/v1/submissions", auth=signer(api), timeout=60).status_code
        told = mine.get(f"/v1/submissions/{taken.json()['submissionId']}", "both")

    assert [taken.status_code, again.status_code, other.status_code] == [202, 200, 202]
    assert looks == [200, 200]
    assert by_signature == 200, "its nonce is written down"
    assert posted == [403, 503], "refused and written down; looked up, and no brokers"
    assert told.json()["resubmissions"] == 1


OUTBOX = [
    "SELECT payload FROM waybill.outbox",
    "SELECT FROM waybill.counter",
    "INSERT INTO waybill.counter VALUES ('acme', 'subject/1', '{}')",
    "SELECT waybill.emit_many('acme', '[]')",
    "SELECT waybill.canary('acme')",
    "INSERT INTO waybill_submission.submission (submission_id) VALUES (gen_random_uuid())",
    "UPDATE waybill_submission.submission SET ambiguous_at = NULL",
    "UPDATE waybill_submission.submission SET settled_at = now(), settled_by = 'me', settled_why = 'x'",
    "DELETE FROM waybill_submission.submission",
    "TRUNCATE waybill_submission.submission",
    "DELETE FROM waybill_submission.migration",
    f"SELECT FROM {SECOND}.outbox",
    "CREATE SCHEMA mine",
    "CREATE TABLE waybill_submission.mine (id int)",
    "ALTER FUNCTION waybill_submission.forget(timestamptz) SECURITY INVOKER",
]
CONTROL = [
    "INSERT INTO access.api_key (key_id) VALUES ('0123456789abcdef')",
    "UPDATE access.api_key SET revoked_at = NULL",
    "DELETE FROM access.api_key",
    "SELECT FROM access.event",
    "UPDATE access.seen_nonce SET until = now()",
    "TRUNCATE access.seen_nonce",
    "INSERT INTO submission.resubmission_rule (rule) VALUES ('always')",
    "DELETE FROM submission.resubmission_rule",
    "INSERT INTO fabric.config_version (version) VALUES (9)",
    "UPDATE fabric.object SET body = NULL",
    "SELECT FROM fabric.control_outbox",
    "UPDATE read.delivery SET state = 'acknowledged'",
    "SELECT FROM read.attempt",
    "SELECT FROM delivery.open_task",
    "SELECT body FROM delivery.result",
    "UPDATE delivery.result SET weighed = 'refused'",
    "SELECT FROM submission.refused_result",
    "DELETE FROM submission.refused_result",
    "CREATE SCHEMA mine",
]


@pytest.mark.parametrize(
    ("where", "statement"),
    [*(("outbox", each) for each in OUTBOX), *(("control", each) for each in CONTROL)],
    ids=lambda value: value[:60],
)
def test_what_the_role_has_no_business_with_is_refused(login: Login, where: str, statement: str):
    with (
        closing(psycopg.connect(getattr(login, where), autocommit=True)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_nonces_are_forgotten_when_their_requests_are_too_old_by_themselves(api: Api, login: Login):
    with closing(psycopg.connect(login.control, autocommit=True)) as connection:
        write = "INSERT INTO access.seen_nonce VALUES ('k', %s, now() + %s)"
        for nonce, left in (("old", "-1 s"), ("young", "1 min")):
            connection.execute(write, (nonce, left))
    asyncio.run(forgotten(login.control))

    with closing(psycopg.connect(api.control_dsn)) as owner:
        left_over = owner.execute("SELECT nonce FROM access.seen_nonce WHERE key_id = 'k'").fetchall()
    assert left_over == [("young",)]


async def forgotten(dsn: str) -> None:
    pool = open_pool(dsn, max_size=1)
    await pool.open()
    await forget_nonces(pool, SystemClock().now())
    await pool.close()


def test_forgetting_never_takes_what_is_young(api: Api, login: Login, fresh_subject: str):
    api.post(erase(fresh_subject), fresh_subject)

    with closing(psycopg.connect(login.outbox, autocommit=True)) as connection:
        connection.execute("SELECT waybill_submission.forget('infinity')")

    assert api.post(erase(fresh_subject), fresh_subject).status_code == 200


def test_what_is_printed_is_what_is_run_and_may_be_run_again(api: Api):
    role = f"api_{secrets.token_hex(4)}"

    before = provision(api, "--role", role, "--print")
    done = json.loads(provision(api, "--role", role, "--json"))["databases"]

    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as owner:
        owner.execute(done[0]["sql"].encode())
        owner.execute(f"DROP OWNED BY {role}".encode())
    with closing(psycopg.connect(api.database.dsn("postgres"), autocommit=True)) as owner:
        for each in done[1:]:
            owner.execute(each["sql"].encode())
        owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
    assert all(each["sql"] in before for each in done)
