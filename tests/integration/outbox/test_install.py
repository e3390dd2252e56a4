"""Putting the schema in: by us, by a team's own tool from the printed text, twice, and by two deployments at once."""

import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from fixtures.fix_outbox import ON_BOTH, OutboxDatabase

from waybill.infra import migrate
from waybill.kernel.errors import ConfigError
from waybill.outbox import CommandDraft, Outbox
from waybill.outbox.install import PACKAGE, Roles, install, sql_text

pytestmark = pytest.mark.postgres

PSQL = shutil.which("psql")
CATALOG = """
SELECT 'column', c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || a.attnotnull
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND c.relkind IN ('r', 'p')
WHERE c.relnamespace = 'waybill'::regnamespace
UNION ALL SELECT 'function', p.oid::regprocedure::text, md5(p.prosrc || coalesce(pg_get_function_sqlbody(p.oid), ''))
    || p.prosecdef || coalesce(p.proacl::text, '') FROM pg_proc p WHERE pronamespace = 'waybill'::regnamespace
UNION ALL SELECT 'trigger', t.tgrelid::regclass || '.' || t.tgname, pg_get_triggerdef(t.oid) || t.tgenabled::text
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'waybill'::regnamespace AND NOT t.tgisinternal
UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'waybill'::regnamespace
UNION ALL SELECT 'publication', pubname, pubinsert::text || pubupdate || pubdelete || pubtruncate || pubviaroot
FROM pg_publication
UNION ALL SELECT 'migration', number::text, name || digest FROM waybill.migration
ORDER BY 1, 2
"""


def works(database: OutboxDatabase) -> bool:
    database.serve("acme")
    with database.connect() as connection:
        emitted = Outbox(connection, tenant="acme").emit(
            CommandDraft(aggregate_type="subject", aggregate_id="7", command_type="subject.erase", data={})
        )
    return emitted.sequences == {"crm": 1, "erp": 1}


@ON_BOTH
def test_the_printed_text_makes_what_install_makes(empty_database: OutboxDatabase):
    with closing(empty_database.connect("postgres")) as connection:
        with connection.transaction(force_rollback=True):
            install(connection)
            installed = connection.execute(CATALOG.encode()).fetchall()
        connection.execute(sql_text().encode())  # as psycopg, Alembic or Django would: one text, no parameters
        connection.commit()

    assert empty_database.rows(CATALOG) == installed
    assert works(empty_database)


@pytest.mark.system
@pytest.mark.skipif(PSQL is None, reason="needs psql: apt-get install postgresql-client")
@ON_BOTH
def test_plain_psql_runs_the_printed_text_and_install_finds_it_applied(empty_database: OutboxDatabase, tmp_path: Path):
    script = tmp_path / "outbox.sql"
    script.write_text(sql_text())

    command = [str(PSQL), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-1", "-f", str(script), empty_database.dsn()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})

    assert done.returncode == 0, done.stderr
    with closing(empty_database.connect("postgres")) as connection:
        assert install(connection) == []
    assert works(empty_database)


def test_a_second_install_changes_nothing(own_outbox: OutboxDatabase):
    before = own_outbox.rows(CATALOG)

    with closing(own_outbox.connect("postgres")) as connection:
        assert install(connection) == []
        connection.commit()

    assert own_outbox.rows(CATALOG) == before


def test_two_deployments_at_once_end_with_one_schema(empty_database: OutboxDatabase):
    together = threading.Barrier(2)

    def deploy() -> int:
        with closing(empty_database.connect("postgres")) as connection:
            together.wait(timeout=30)
            done = install(connection)
            connection.commit()
            return len(done)

    with ThreadPoolExecutor(2) as pool:
        counts = [future.result() for future in [pool.submit(deploy), pool.submit(deploy)]]

    assert sorted(counts) == [0, len(migrate.load(PACKAGE))]


def test_other_names_for_schema_and_roles(empty_database: OutboxDatabase):
    roles = Roles(app="shop_app", relay="shop_relay")
    try:
        with closing(empty_database.connect("postgres", autocommit=True)) as connection:
            install(connection, schema="shop_out", roles=roles)
            connection.execute("SET ROLE shop_app")
            with pytest.raises(psycopg.Error) as caught:
                connection.execute("SELECT shop_out.emit('acme', 'a', 'b', 'c.d', '{}')")

        assert caught.value.sqlstate == "WB001"
        assert empty_database.rows("SELECT pubname FROM pg_publication") == [("shop_out_outbox",)]
    finally:
        empty_database.rows("DROP OWNED BY shop_app, shop_relay")
        empty_database.rows("DROP ROLE shop_app, shop_relay")


def test_an_applied_migration_with_other_text_is_refused(own_outbox: OutboxDatabase):
    own_outbox.rows("UPDATE waybill.migration SET digest = 'x' WHERE number = 2")

    with closing(own_outbox.connect("postgres")) as connection, pytest.raises(ConfigError, match="0002"):
        install(connection)


def test_a_schema_of_a_newer_version_is_refused(own_outbox: OutboxDatabase):
    own_outbox.rows("INSERT INTO waybill.migration (number, name, digest) VALUES (99, 'later', 'x')")

    with closing(own_outbox.connect("postgres")) as connection, pytest.raises(ConfigError, match="newer"):
        install(connection)


@pytest.mark.parametrize("name", ["Waybill", "way bill", 'x"; DROP TABLE y; --', "pg_mine", "", "x" * 41])
def test_a_name_that_is_no_plain_identifier_never_reaches_sql(name: str):
    with pytest.raises(ConfigError):
        sql_text(schema=name)
    with pytest.raises(ConfigError):
        sql_text(roles=Roles(app=name))


def test_a_database_in_another_encoding_is_refused(empty_database: OutboxDatabase):
    latin = f"{empty_database.name}_latin"
    empty_database.rows(f"CREATE DATABASE {latin} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    try:
        with (
            closing(psycopg.connect(empty_database.server.dsn(latin))) as connection,
            pytest.raises(psycopg.Error, match="UTF8"),
        ):
            install(connection)
    finally:
        empty_database.rows(f"DROP DATABASE {latin}")
