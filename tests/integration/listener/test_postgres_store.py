"""What the PostgreSQL store asks of its server: one row per statement, and connections that are still there."""

import re
from contextlib import closing
from typing import LiteralString

import psycopg
import pytest
from fixtures.fix_listener import Site
from psycopg import sql

from waybill.listener.stores.postgres import FIND, FORGET, RESUME

pytestmark = pytest.mark.postgres
#: Backends of this database that wait for their next statement.
_IDLE: LiteralString = """
    SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'waybill-listener' AND state = 'idle'
"""


def _numbered(statement: sql.SQL, schema: str) -> str:
    """Return a statement with the server's own placeholders, as a prepared one has them."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return re.sub(r"%\((\w+)\)s", number, statement.format(schema=sql.Identifier(schema)).as_string())


def _completing(connection: psycopg.Connection, schema: str) -> str:
    """Return the statement inside the function that gives a record its receipt, its arguments as placeholders."""
    query = "SELECT prosrc, proargnames FROM pg_proc WHERE oid = %s::regproc"
    row = psycopg.Cursor(connection).execute(query, (f"{schema}.complete",)).fetchone()
    assert row is not None
    body, arguments = row
    for number, name in enumerate(arguments, 1):
        body = body.replace(name, f"${number}")
    return str(body[body.index("UPDATE") : body.index(";")])


@pytest.mark.parametrize("statement", [None, RESUME, FORGET, FIND], ids=["complete", "resume", "forget", "find"])
def test_a_statement_finds_its_delivery_by_its_identifier_in_a_table_nobody_analyzed(
    statement: sql.SQL | None, bare_site: Site
) -> None:
    with closing(psycopg.connect(bare_site.dsn, autocommit=True, cursor_factory=psycopg.RawCursor)) as connection:
        asked = (
            _completing(connection, bare_site.schema) if statement is None else _numbered(statement, bare_site.schema)
        )
        query = "EXPLAIN (GENERIC_PLAN, COSTS off) " + asked
        plan = "\n".join(row[0] for row in connection.execute(query.encode()))

    looks = [line for line in plan.splitlines() if "Index Cond" in line]
    assert looks
    assert all("delivery_id = $" in look or "operation_id = $" in look for look in looks), plan
    assert "Seq Scan" not in plan


async def test_connections_the_server_closed_while_they_were_idle_are_not_handed_to_a_delivery(site: Site) -> None:
    assert (await site.send(site.make_command(sequences={"crm": 1}))).status_code == 200
    closed = await site.rows(f"SELECT pg_terminate_backend(pid)::text FROM ({_IDLE}) AS idle")
    assert closed

    answer = await site.send(site.make_command(sequences={"crm": 2}))

    assert answer.status_code == 200
    assert len(await site.effects()) == 2
