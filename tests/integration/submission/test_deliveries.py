"""Reading deliveries over HTTP: page by page, narrowed, unchanged, and never another tenant's."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import httpx
import psycopg
import pytest
from fixtures.fix_submission import Api

pytestmark = pytest.mark.postgres
AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
ADD = (
    "INSERT INTO read.delivery (tenant, delivery_id, command_id, destination, aggregate, sequence, command_type, issued_at, state)"
    " VALUES (%s, %s, %s, %s, %s, %s, 'subject.erase', %s, %s)"
)


@pytest.fixture
def folded(api: Api, fresh_subject: str) -> Iterator[list[str]]:
    """Ids of seven deliveries, newest first; three have one time, the last has none yet."""
    known = sorted((AT - timedelta(minutes=age), uuid.uuid4()) for age in (0, 1, 1, 1, 2, 3))
    ordered = [*known[::-1], (None, uuid.uuid4())]
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as connection:
        for number, (at, identity) in enumerate(ordered, start=1):
            state = "acknowledged" if number == 1 else "queued"
            destination = "crm" if number % 2 else "erp"
            place = (api.database.tenant, identity, uuid.uuid4(), destination, f"subject/{fresh_subject}")
            connection.execute(ADD.encode(), (*place, number, at, state))
        yield [str(identity) for _, identity in ordered]
        connection.execute("DELETE FROM read.delivery")


def pages(api: Api, query: str, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    cursor = ""
    while True:
        page = api.get(f"/v1/deliveries?limit={limit}{query}{cursor}", "reader").json()
        found.append([each["deliveryId"] for each in page["deliveries"]])
        if "next" not in page:
            return found
        cursor = f"&cursor={page['next']}"


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_pages_hold_every_delivery_in_order_whatever_their_size(api: Api, folded: list[str], limit: int):
    found = pages(api, "", limit)

    assert [each for page in found for each in page] == folded
    assert max(map(len, found)) <= limit


def test_what_comes_in_meanwhile_moves_nothing(api: Api, folded: list[str], fresh_subject: str):
    first = api.get("/v1/deliveries?limit=3", "reader").json()
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as connection:
        newest = (
            api.database.tenant,
            uuid.uuid4(),
            uuid.uuid4(),
            "crm",
            f"subject/{fresh_subject}",
            9,
            AT + timedelta(1),
            "queued",
        )
        connection.execute(ADD.encode(), newest)

    second = api.get(f"/v1/deliveries?limit=3&cursor={first['next']}", "reader").json()

    assert [each["deliveryId"] for each in second["deliveries"]] == folded[3:6]


def test_pages_are_narrowed(api: Api, folded: list[str], fresh_subject: str):
    states = pages(api, "&state=acknowledged", 50)
    here = pages(api, f"&aggregate=subject/{fresh_subject}&destination=crm", 1)
    elsewhere = pages(api, "&aggregate=subject/other", 50)

    assert states == [folded[:1]]
    assert [each for page in here for each in page] == folded[::2]
    assert elsewhere == [[]]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "state=lost", "cursor=x", "cursor=%F0", "commandId=1", "sort=age", "limit=1&limit=2", "aggregate=%00"]
)  # fmt: skip
def test_what_is_no_query_is_refused(api: Api, query: str):
    refused = api.get(f"/v1/deliveries?{query}", "reader")

    assert (refused.status_code, refused.json()["reason"]) == (400, "malformed_query")


def test_one_delivery_is_told_by_its_id_and_not_again_while_nothing_changed(api: Api, folded: list[str]):
    found = api.get(f"/v1/deliveries/{folded[0]}", "reader")
    headers = {**api.headers("reader"), "if-none-match": found.headers["etag"]}
    again = httpx.get(f"{api.url}/v1/deliveries/{folded[0]}", headers=headers, timeout=60)
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as connection:
        connection.execute("UPDATE read.delivery SET version = 7 WHERE delivery_id = %s", (folded[0],))
    moved = httpx.get(f"{api.url}/v1/deliveries/{folded[0]}", headers=headers, timeout=60)

    assert (found.status_code, found.json()["state"]) == (200, "acknowledged")
    assert (again.status_code, again.content) == (304, b"")
    assert (moved.status_code, moved.json()["version"]) == (200, 7)


@pytest.mark.requirement("HS-2")
def test_deliveries_of_another_tenant_are_not_there(api: Api, folded: list[str]):
    theirs = api.get(f"/v1/deliveries/{folded[0]}", "beside")
    nobodys = api.get(f"/v1/deliveries/{uuid.uuid4()}", "beside")

    assert (theirs.status_code, theirs.content) == (404, nobodys.content)
    assert api.get("/v1/deliveries", "beside").json() == {"deliveries": []}
