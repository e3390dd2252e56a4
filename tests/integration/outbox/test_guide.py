"""The guide's own text, run: its SQL, its Python, its retry recipe, its table of rules."""

import random
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fixtures.fix_outbox import OutboxDatabase

from waybill.outbox import CommandDraft, Outbox, is_retryable
from waybill.outbox.core.rules import SQLSTATES

pytestmark = pytest.mark.postgres


@pytest.fixture
def guide(checkout: Path) -> str:
    return (checkout / "docs" / "guides" / "outbox.md").read_text()


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)


def test_its_sql_runs(own_outbox: OutboxDatabase, guide: str):
    transaction, housekeeping = blocks(guide, "sql")
    own_outbox.rows("CREATE TABLE customer (id int, state text); GRANT ALL ON customer TO waybill_app")

    with closing(own_outbox.connect(autocommit=True)) as connection:
        connection.execute(transaction.encode())
    own_outbox.rows(housekeeping)

    assert own_outbox.rows("SELECT payload FROM waybill.outbox") == [(b'{"customer": 7, "price": 1.10}',)]


def test_its_python_runs_and_its_recipe_tries_again(own_outbox: OutboxDatabase, guide: str):
    emitting, recipe = blocks(guide, "python")
    own_outbox.rows("CREATE TABLE customer (id int, state text); GRANT ALL ON customer TO waybill_app")
    pauses: list[float] = []
    words: dict[str, Any] = {
        "Outbox": Outbox, "CommandDraft": CommandDraft, "is_retryable": is_retryable, "random": random,
        "pause": pauses.append,
    }  # fmt: skip
    exec(recipe, words)  # the guide's own code

    def work(connection: psycopg.Connection[Any]) -> str:
        exec(emitting, {**words, "connection": connection})
        if len(pauses) < 2:
            raise psycopg.errors.SerializationFailure
        return "done"

    assert words["in_transaction"](own_outbox.connect, work) == "done"
    assert len(pauses) == 2
    assert own_outbox.rows("SELECT count(*) FROM waybill.outbox") == [(1,)]


def test_its_recipe_gives_up_on_what_will_not_change(guide: str):
    words: dict[str, Any] = {"is_retryable": is_retryable, "random": random, "pause": lambda _: None}
    exec(blocks(guide, "python")[1], words)  # the guide's own code

    def connect() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        words["in_transaction"](connect, None)


def test_it_lists_every_rule(guide: str):
    assert dict(re.findall(r"^\| (WB\d{3}) \| `(\w+)` \|", guide, re.MULTILINE)) == SQLSTATES


def test_it_lists_every_option(own_outbox: OutboxDatabase, guide: str):
    with closing(own_outbox.connect()) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute("SELECT waybill.emit('acme', 'subject', '7', 'subject.erase', '{}', '{\"x\": 1}')")

    known = set(str(caught.value.diag.message_hint).removeprefix("Known: ").split(", "))
    table = guide.split("Options are one JSON object:")[1].split("A command without a route", maxsplit=1)[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == known
