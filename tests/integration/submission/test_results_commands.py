"""`waybill results`: what was said by every door, what became of it, and one result whole."""

import json
import uuid
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from typer.testing import CliRunner

from waybill.cli.app import root
from waybill.cli.migrate import migrate_all
from waybill.kernel.errors import ConfigError

if TYPE_CHECKING:
    from fixtures.fix_stack import FreshDatabase

pytestmark = pytest.mark.postgres
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETTLED, WAITING, POSTED = (uuid.uuid4() for _ in range(3))
DELIVERY = uuid.uuid4()
BODY = b'{"data":{"receipt":{"status":"done"}}}'


def heard(minute: int, weighed: str, result_id: uuid.UUID | None, **changes: Any) -> dict[str, Any]:
    """Return a row as a worker writes it: whole where the result was believed, else its digest alone."""
    is_believed = weighed != "refused"
    row = {
        "tenant": "acme",
        "destination": "crm",
        "partition": 0,
        "record_offset": minute,
        "result_id": result_id,
        "delivery_id": uuid.uuid4() if result_id else None,
        "aggregate": "subject/7" if result_id else None,
        "weighed": weighed,
        "reason": None if is_believed else "signature_mismatch",
        "key_id": "whpk-1" if result_id else None,
        "skew_ms": 20 if result_id else None,
        "is_quarantined": False,
        "said": json.dumps({"evidence": "crm:1"}) if result_id else None,
        "signed_timestamp": "1767268800" if is_believed else None,
        "signature": "v1a,AAAA" if is_believed else None,
        "body": BODY if is_believed else None,
        "body_sha256": "0" * 64,
        "arrived_at": NOON + timedelta(minutes=minute),
    }
    return {**row, **changes}


ROWS = [
    heard(1, "settled", SETTLED, delivery_id=DELIVERY),
    heard(2, "refused", None),
    heard(3, "refused", SETTLED, delivery_id=DELIVERY, reason="replayed"),
    heard(4, "waiting", WAITING, destination="cad", is_quarantined=True),
    heard(6, "settled", uuid.uuid4(), tenant="other"),
]


@dataclass(frozen=True)
class Control:
    """The control database as the commands find it."""

    dsn: str

    def run(self, *words: str) -> Any:
        done = self.invoke(*words, "--json")
        assert done.exit_code == 0, done.exception
        return json.loads(done.stdout)

    def invoke(self, *words: str) -> Any:
        return CliRunner().invoke(root, ["results", *words], env={"WAYBILL_CONTROL_DSN": self.dsn, "COLUMNS": "200"})

    def listed(self, *words: str) -> list[int]:
        """Return the minutes at which those that are listed arrived."""
        return [int(row["arrived_at"][14:16]) for row in self.run("list", "acme", *words)["results"]]


@pytest.fixture
def control(fresh_database: "FreshDatabase") -> Control:
    migrate_all(fresh_database.dsn())
    with closing(psycopg.connect(fresh_database.dsn(), autocommit=True)) as connection:
        for row in ROWS:
            names, holes = ", ".join(row), ", ".join(f"%({name})s" for name in row)
            connection.execute(f"INSERT INTO delivery.result ({names}) VALUES ({holes})".encode(), row)
        connection.execute(
            "INSERT INTO submission.refused_result (refused_at, tenant, principal, key_id, reason, result_id, body_sha256)"
            " VALUES (%s, 'acme', 'crm', '0f3a9c5d7e1b2468', 'tenant', %s, repeat('0', 64))",
            (NOON + timedelta(minutes=5), POSTED),
        )
    return Control(dsn=fresh_database.dsn())


FILTERS = {
    (): [5, 4, 3, 2, 1],
    ("--limit", "2"): [5, 4],
    ("--destination", "crm"): [5, 3, 2, 1],
    ("--destination", "cad"): [4],
    ("--weighed", "refused"): [5, 3, 2],
    ("--weighed", "settled"): [1],
    ("--weighed", "late"): [],
    ("--quarantined",): [4],
    ("--delivery", str(DELIVERY)): [3, 1],
    ("--delivery", str(DELIVERY), "--weighed", "refused"): [3],
}


def test_results_of_every_door_are_listed_newest_first(control: Control):
    assert {words: control.listed(*words) for words in FILTERS} == FILTERS


def test_a_row_of_the_list_says_why_and_not_what(control: Control):
    rows = control.run("list", "acme")["results"]

    assert [(row["door"], row["weighed"], row["reason"]) for row in rows] == [
        ("api", "refused", "tenant"),
        ("topic", "waiting", None),
        ("topic", "refused", "replayed"),
        ("topic", "refused", "signature_mismatch"),
        ("topic", "settled", None),
    ]
    assert not any("said" in row or "body" in row for row in rows)


def test_one_result_is_shown_whole_with_its_copies(control: Control):
    first, copy = control.run("show", "acme", str(SETTLED))["records"]

    assert (first["weighed"], first["said"], first["signature"]) == ("settled", {"evidence": "crm:1"}, "v1a,AAAA")
    assert first["body"] == BODY.decode()
    assert (copy["weighed"], copy["reason"], copy["body"]) == ("refused", "replayed", None)


def test_what_was_posted_and_refused_is_shown_by_whom(control: Control):
    (row,) = control.run("show", "acme", str(POSTED))["records"]

    assert (row["door"], row["reason"], row["access_key_id"]) == ("api", "tenant", "0f3a9c5d7e1b2468")


def test_a_table_is_for_people(control: Control):
    assert "signature_mismatch" in control.invoke("list", "acme").stdout.replace("\n", "")
    assert "whpk-1" in control.invoke("show", "acme", str(SETTLED)).stdout


WRONG = {
    ("show", "acme", "0199f3c0-0000-7000-8000-000000000000"): "waybill results list acme",
    ("show", "other", str(SETTLED)): "no result",
    ("show", "acme", "7"): "expected a whole id",
    ("list", "acme", "--delivery", "7"): "expected a whole id",
}


def test_what_is_not_there_is_said_with_what_to_do(control: Control):
    for words, message in WRONG.items():
        ended = control.invoke(*words)

        assert isinstance(ended.exception, ConfigError), words
        assert message in str(ended.exception)
