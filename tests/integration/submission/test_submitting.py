"""Submitting: what is committed, what the same key gives again, and what is refused."""

import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fixtures.fix_submission import SECOND, Api, catalogued, erase, running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from waybill.contracts.fabric import SchemaFormat
from waybill.fabric import Applied, FabricStore, plan
from waybill.outbox.core.settings import TypeSchema
from waybill.testing import eventually

pytestmark = pytest.mark.postgres


def remembered(api: Api, key: str) -> int:
    query = "SELECT count(*) FROM waybill_submission.submission WHERE tenant = %s AND idempotency_key = %s"
    return int(api.database.rows(query, api.database.tenant, key)[0][0])


def test_what_is_taken_is_in_the_outbox_and_says_nothing_of_its_application(api: Api, fresh_subject: str):
    taken = api.post(erase(fresh_subject), fresh_subject)

    told = taken.json()
    rows = api.database.rows(
        "SELECT command_id::text, sequences FROM waybill.outbox WHERE aggregate = %s", f"subject/{fresh_subject}"
    )
    assert taken.status_code == 202
    assert [(row[0], row[1]) for row in rows] == [(told["commands"][0]["commandId"], {"crm": 1, "erp": 1})]
    assert [each["destination"] for each in told["commands"][0]["deliveries"]] == ["crm", "erp"]
    assert told["state"] == "accepted"
    assert api.get(f"/v1/submissions/{told['submissionId']}").json() == told


@pytest.mark.requirement("GW-15")
def test_the_same_bytes_under_the_same_key_are_the_same_submission(api: Api, fresh_subject: str):
    first = api.post(erase(fresh_subject), fresh_subject)

    again = [api.post(erase(fresh_subject), fresh_subject) for _ in range(3)]

    assert [each.status_code for each in again] == [200, 200, 200]
    assert {each.json()["submissionId"] for each in again} == {first.json()["submissionId"]}
    assert again[-1].json()["commands"] == first.json()["commands"]
    assert again[-1].json()["resubmissions"] == 3
    assert len(api.issued(f"subject/{fresh_subject}")) == 1


def test_of_many_at_once_under_one_key_one_is_taken(api: Api, fresh_subject: str):
    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(lambda _: api.post(erase(fresh_subject), fresh_subject), range(16)))

    assert sorted(each.status_code for each in done) == [200] * 15 + [202]
    assert len({each.json()["submissionId"] for each in done}) == 1
    assert len(api.issued(f"subject/{fresh_subject}")) == 1


@pytest.mark.parametrize(
    ("other", "batch"),
    [
        (b'{"commandType": "subject.erase", "aggregate": "subject/%s", "data": {"id": 2}}', False),
        # the same meaning in other bytes is another body
        (b'{"commandType":"subject.erase","aggregate":"subject/%s","data":{"id":1}}', False),
        (b'{"commands": [{"commandType": "subject.erase", "aggregate": "subject/%s", "data": {"id": 1}}]}', True),
        # another outbox numbers it
        (b'{"commandType": "subject.erase", "aggregate": "article/%s", "data": {"id": 1}}', False),
    ],
)
def test_another_body_under_the_same_key_is_a_conflict_and_nothing_is_issued(
    api: Api, fresh_subject: str, other: bytes, batch: bool
):
    subject = fresh_subject.encode()
    first = b'{"commandType": "subject.erase", "aggregate": "subject/%s", "data": {"id": 1}}' % subject
    assert api.post(first, fresh_subject).status_code == 202

    refused = api.post(other % subject, fresh_subject, batch=batch)

    assert (refused.status_code, refused.json()["reason"]) == (409, "idempotency_key_reused")
    assert refused.headers["content-type"] == "application/problem+json"
    assert len(api.issued(f"subject/{fresh_subject}")) == 1
    articles = f"SELECT count(*) FROM {SECOND}.outbox WHERE aggregate = %s"
    assert api.database.rows(articles, f"article/{fresh_subject}") == [(0,)]


def test_a_key_belongs_to_its_principal(api: Api, fresh_subject: str):
    first = api.post(erase(fresh_subject), fresh_subject, who="shop")
    second = api.post(erase(fresh_subject, data=2), fresh_subject, who="till")

    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["submissionId"] != second.json()["submissionId"]


def test_of_a_batch_all_is_taken_or_nothing_and_the_key_stays_free(api: Api, fresh_subject: str):
    good, bad = erase(fresh_subject), erase(fresh_subject, commandType="subject.unheard")

    refused = api.post({"commands": [good, bad]}, fresh_subject, batch=True)
    taken = api.post({"commands": [good, good]}, fresh_subject, batch=True)

    assert (refused.status_code, refused.json()["reason"]) == (422, "unknown_route")
    assert taken.status_code == 202
    assert [each["deliveries"][0]["sequence"] for each in taken.json()["commands"]] == [1, 2]
    assert len(api.issued(f"subject/{fresh_subject}")) == 2


def test_data_that_break_the_schema_of_their_type_are_refused_by_place_and_not_told(api: Api, fresh_subject: str):
    def dispatch(line: dict[str, Any]) -> dict[str, Any]:
        data = {"lines": [{"sku": 1}, line]}
        return {"commandType": "order.dispatch", "aggregate": f"order/{fresh_subject}", "data": data}

    right, wrong = dispatch({"sku": 2}), dispatch({"secret": "hunter2"})
    refused = api.post(wrong, fresh_subject)
    batch = api.post({"commands": [right, wrong]}, fresh_subject, batch=True)
    taken = api.post(right, fresh_subject)

    detail = "the data break the schema of order.dispatch v1.0 at /lines/1/sku (required)"
    assert [each.status_code for each in (refused, batch, taken)] == [422, 422, 202]
    assert (refused.json()["reason"], refused.json()["detail"]) == ("payload_invalid", detail)
    assert batch.json()["detail"] == f"command 2 of 2: {detail}"
    assert "hunter2" not in refused.text + batch.text
    assert len(api.issued(f"order/{fresh_subject}")) == 1


def test_what_was_taken_stays_taken_whatever_the_catalogue_says_later(api: Api, fresh_subject: str):
    of_tenant = api.beside
    late = TypeSchema(
        command_type="subject.tag", version="v1.0", format=SchemaFormat.JSON_SCHEMA, schema='{"type": "object"}'
    )
    body = erase(fresh_subject, commandType="subject.tag", data=7, destinations=["crm"], ttl="1h")
    first = api.post(body, fresh_subject, who="beside")
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as connection:
        store = FabricStore(connection)
        config = store.current()
        wanted = replace(
            config,
            tenants=tuple(
                replace(each, command_types=(*each.command_types, catalogued(of_tenant, late)))
                if each.name == of_tenant
                else each
                for each in config.tenants
            ),
        )
        store.record(wanted, plan(config, wanted).changes, Applied(at=datetime.now(UTC), by="test"))

    eventually(
        lambda: api.post(body, uuid.uuid4().hex, who="beside").status_code == 422, within_s=10, what="the catalogue"
    )

    again = api.post(body, fresh_subject, who="beside")
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["submissionId"] == first.json()["submissionId"]


json_texts = st.recursive(
    st.sampled_from(["1.10", "1e400", "-0", "9" * 400, '"\\u2028\\ud83d\\ude00<>&"', '"😀\u2028é<>&"', "null", "true"])
    | st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\')).map(lambda text: f'"{text}"'),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: "[ " + ",\n".join(each) + "]")
        | st.lists(inner, min_size=1, max_size=3).map(lambda each: "{" + ", ".join(f'"twice":{x}' for x in each) + " }")
    ),
    max_leaves=8,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(json_texts, min_size=1, max_size=12))
def test_the_data_that_were_submitted_are_the_data_that_are_stored(api: Api, texts: list[str]):
    key = uuid.uuid4().hex
    commands = [f'{{"data" :\t{text} , "commandType":"subject.erase","aggregate":"subject/{key}"}}' for text in texts]

    taken = api.post(f'{{"commands": [{", ".join(commands)}]}}'.encode(), key, batch=True)

    assert taken.status_code == 202, taken.text
    assert api.issued(f"subject/{key}") == [text.encode() for text in texts]


def test_data_that_are_no_json_are_stored_as_they_came(api: Api, fresh_subject: str):
    body = erase(fresh_subject, contentType="application/octet-stream", dataBase64="AP8KIn0=")
    del body["data"]

    assert api.post(body, fresh_subject).status_code == 202
    assert api.issued(f"subject/{fresh_subject}") == [b'\x00\xff\n"}']


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "malformed_body"),
        (b'\xff{"commandType": "a"}', 400, "malformed_body"),
        ({**erase("1"), "urgent": True}, 400, "unknown_member"),
        (erase("1", aggregate="subject/\x00"), 400, "malformed_member"),
        (b'{"commandType":"subject.erase","aggregate":"subject/\\ud800","data":1}', 400, "malformed_member"),
        ({"commandType": "subject.erase", "aggregate": "subject/1"}, 400, "missing_member"),
        (erase("1", aggregate="planet/7"), 422, "foreign_aggregate_type"),
        (erase("1", ttl="999d"), 422, "ttl_out_of_range"),
        (erase("1", commandType="subject.hold"), 422, "form_not_permitted"),
        (erase("1", data="x" * 300_000), 413, "payload_too_large"),
        (erase("1", data="x" * 3_000_000), 413, "body_too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused_is_a_problem_and_nothing_is_remembered(
    api: Api, fresh_subject: str, body: Any, status: int, reason: str
):
    refused = api.post(body, fresh_subject)

    assert (refused.status_code, refused.json()["reason"]) == (status, reason)
    assert refused.json()["status"] == status
    assert remembered(api, fresh_subject) == 0


def test_commands_of_two_outboxes_are_two_submissions(api: Api, fresh_subject: str):
    both = [erase(fresh_subject), erase(fresh_subject, aggregate=f"article/{fresh_subject}")]

    refused = api.post({"commands": both}, fresh_subject, batch=True)
    alone = api.post(both[1], fresh_subject)

    assert (refused.status_code, refused.json()["reason"]) == (422, "several_outboxes")
    assert alone.status_code == 202
    assert api.get(f"/v1/submissions/{alone.json()['submissionId']}").json() == alone.json()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"idempotency-key": ""}, 400),
        ({"idempotency-key": "x" * 201}, 400),
        ({"content-type": "text/plain"}, 415),
        ({"content-encoding": "gzip"}, 415),
    ],
)
def test_headers_are_as_described(api: Api, fresh_subject: str, headers: dict[str, str], status: int):
    sent = {"content-type": "application/json", "idempotency-key": fresh_subject, **headers}

    assert api.post(erase(fresh_subject), "", **sent).status_code == status


@pytest.mark.requirement("GW-14")
def test_a_commit_nobody_knows_about_is_told_as_unknown_and_asked_again_it_is_one(api: Api, fresh_subject: str):
    table = "waybill_submission.submission"
    api.post(erase(fresh_subject), fresh_subject + "-before")  # the table is there
    api.database.rows(
        "CREATE FUNCTION public.die() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$"
    )
    api.database.rows(
        f"CREATE CONSTRAINT TRIGGER die AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION public.die()"
    )
    try:
        lost = api.post(erase(fresh_subject), fresh_subject)
    finally:
        api.database.rows(f"DROP TRIGGER die ON {table}")
        api.database.rows("DROP FUNCTION public.die()")
    found = api.post(erase(fresh_subject), fresh_subject)

    assert (lost.status_code, lost.json()["reason"]) == (503, "outcome_unknown")
    assert lost.json()["type"].endswith("AMBIGUOUS_RESULT")
    assert found.status_code in {200, 202}
    assert found.json()["submissionId"] == lost.json()["submissionId"]
    assert len(api.issued(f"subject/{fresh_subject}")) == 2


def test_a_database_that_is_not_there_is_told_as_such(api: Api, fresh_subject: str):
    away = api.post(erase(fresh_subject), fresh_subject, who="lost")

    assert (away.status_code, away.json()["reason"]) == (503, "outbox_unavailable")
    assert away.headers["retry-after"] == "1"


def test_a_stop_lets_what_is_under_way_finish(api: Api, fresh_subject: str):
    api.post(erase(fresh_subject), fresh_subject)
    done: list[int] = []
    with (
        running(api.control_dsn, api.database.dsn("postgres")) as (at, process),
        closing(api.database.connect("postgres")) as holder,
    ):
        mine = replace(api, url=at["url"], process=process)
        lock = "SELECT FROM waybill.counter WHERE tenant = %s AND aggregate = %s FOR UPDATE"
        holder.execute(lock.encode(), (api.database.tenant, f"subject/{fresh_subject}"))
        asking = threading.Thread(target=lambda: done.append(mine.post(erase(fresh_subject), "second").status_code))
        asking.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'waybill-api'"
        )
        eventually(lambda: api.database.rows(waiting)[0][0] == 1, 30, "the submission waits for the aggregate")
        process.send_signal(signal.SIGTERM)
        holder.rollback()
        asking.join(60)
        ended = process.wait(60)

    assert done == [202]
    assert ended in {0, -signal.SIGTERM}
    assert len(api.issued(f"subject/{fresh_subject}")) == 2
