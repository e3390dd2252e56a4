"""The outbox by its command line alone: install, check, emit, keep its days; exit codes and what is printed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures.fix_outbox import OutboxDatabase

pytestmark = pytest.mark.postgres

WAYBILL = Path(sys.executable).with_name("waybill")


def waybill(*arguments: str, stdin: str = "", code: int = 0) -> str:
    done = subprocess.run([str(WAYBILL), *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def document(*arguments: str, stdin: str = "", code: int = 0) -> Any:
    return json.loads(waybill(*arguments, "--json", stdin=stdin, code=code))


def test_from_an_empty_database_to_a_command(empty_database: OutboxDatabase, tmp_path: Path):
    admin, app = empty_database.dsn(), empty_database.dsn("waybill_app")

    before = document("outbox", "check", "--dsn", admin, code=1)
    first = document("outbox", "install", "--dsn", admin)
    second = document("outbox", "install", "--dsn", admin)
    after = document("outbox", "check", "--dsn", admin)
    empty_database.serve("acme")
    file = tmp_path / "data.json"
    file.write_text('{"price": 1.10}')
    emit = ["emit", "--dsn", app, "--tenant", "acme", "subject.erase", "subject/7"]
    emitted = document(*emit, "--data", f"@{file}", "--ttl", "2h", "--request", "r-1")
    again = document(*emit, "--data", "-", stdin="[2]")
    table = waybill(*emit)
    kept = document("outbox", "housekeep", "--dsn", admin, "--ahead", "8")

    assert (before["ok"], after["ok"]) == (False, True)
    assert first["applied"][0] == "0001_rules"
    assert second["applied"] == []
    assert (emitted["aggregate"], emitted["sequences"]) == ("subject/7", {"crm": 1, "erp": 1})
    assert set(emitted["delivery_ids"]) == {"crm", "erp"}
    assert again["sequences"] == {"crm": 2, "erp": 2}
    assert "crm" in table
    assert [step["action"] for step in kept["steps"]] == ["made"]
    rows = empty_database.rows(
        "SELECT payload, request_id, expires_at - issued_at FROM waybill.outbox ORDER BY position LIMIT 1"
    )
    assert [(bytes(payload), request, str(ttl)) for payload, request, ttl in rows] == [
        (b'{"price": 1.10}', "r-1", "2:00:00")
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["subject.erase", "subject/7", "--data", "{} x"], 2, "JSON"),
        (["subject.erase", "subject/7", "--ttl", "0"], 2, "ttl"),
        (["subject.forget", "subject/7"], 2, "route"),
        (["subject.erase", "invoice/7"], 2, "numbered by"),
        (["subject.erase", "7"], 2, "type/id"),
        (["subject.erase", "subject/7", "--schema", "elsewhere"], 3, "install"),
    ],
)
def test_a_refusal_is_one_line_and_an_exit_code(outbox: OutboxDatabase, arguments: list[str], code: int, word: str):
    said = waybill("emit", "--dsn", outbox.dsn("waybill_app"), "--tenant", outbox.tenant, *arguments, code=code)

    assert word in said
    assert "Traceback" not in said


def test_a_role_that_may_not_emit_is_told_who_may(outbox: OutboxDatabase):
    said = waybill(
        "emit", "--dsn", outbox.dsn("waybill_relay"), "--tenant", outbox.tenant, "subject.erase", "subject/7", code=3
    )

    assert "outbox check" in said


def test_nobody_at_that_address_is_said_without_the_password():
    said = waybill("outbox", "check", "--dsn", "postgresql://app:geheim@127.0.0.1:1/none?connect_timeout=2", code=3)

    assert "none on 127.0.0.1:1 as app" in said
    assert "geheim" not in said


def test_the_printed_migrations_name_schema_and_roles():
    printed = waybill("outbox", "sql", "--schema", "shop", "--app-role", "shop_app", "--relay-role", "shop_relay")

    assert "CREATE TABLE shop.outbox" in printed
    assert "TO shop_app, shop_relay" in printed
