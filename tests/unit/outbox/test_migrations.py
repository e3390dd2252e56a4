"""The migration files themselves: the rules they name are the rules of the SDK, and text is filled in safely."""

import re

import pytest

from waybill.infra import migrate
from waybill.infra.postgres import identifier, where
from waybill.kernel.errors import ConfigError, InvariantBroken
from waybill.outbox.core.rules import SQLSTATES
from waybill.outbox.core.settings import HARD_PAYLOAD_LIMIT
from waybill.outbox.install import PACKAGE, sql_text

TEXT = sql_text()


def test_sql_and_sdk_name_the_same_rules():
    states = dict(re.findall(r"WHEN '(\w+)' THEN '(WB\d{3})'", TEXT))
    refused = set(re.findall(r"\.refuse\('(\w+)'", TEXT))

    assert {state: rule for rule, state in states.items()} == SQLSTATES
    assert refused == set(states)


def test_sql_and_sdk_have_the_same_hard_limit():
    assert set(re.findall(r"921600", TEXT)) == {str(HARD_PAYLOAD_LIMIT)}
    assert f"octet_length(payload) <= {HARD_PAYLOAD_LIMIT}" in TEXT


def test_no_placeholder_is_left_and_no_transaction_is_opened():
    assert not re.search(r"\{[a-z_]+\}", TEXT)
    assert not re.search(r"(?im)^\s*(begin|commit|rollback)\s*;", TEXT.replace("BEGIN\n", ""))


def test_tools_that_replace_their_own_placeholders_find_none():
    assert "${" not in TEXT  # Flyway
    assert "{{" not in TEXT  # templates


def test_every_function_that_runs_as_its_owner_says_where_it_looks_names_up():
    heads = re.findall(r"SECURITY DEFINER[^\n]*", TEXT)

    assert heads
    assert {head.removeprefix("SECURITY DEFINER ").removesuffix(" AS $$") for head in heads} == {
        "SET search_path = pg_catalog, pg_temp"
    }


def test_migrations_are_numbered_without_holes():
    assert [migration.number for migration in migrate.load(PACKAGE)] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_a_placeholder_without_a_value_is_our_bug():
    with pytest.raises(InvariantBroken, match="app_role"):
        migrate.script(schema="waybill", package=PACKAGE, substitutions={})


@pytest.mark.parametrize("name", ["waybill", "_x", "a" * 40])
def test_a_plain_identifier_passes(name: str):
    assert identifier(name) == name


def test_where_shows_no_password():
    assert where("postgresql://app:secret@db.test:5433/shop") == "shop on db.test:5433 as app"
    assert "secret" not in where("host=/tmp user=a password=secret")


def test_a_dsn_nobody_can_read_is_not_repeated():
    with pytest.raises(ConfigError) as caught:
        where("postgresql://app:secret@host:port:port/x y=z")

    assert "secret" not in str(caught.value)
