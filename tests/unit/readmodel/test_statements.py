"""Records, SQL and migration name the same columns."""

import dataclasses
import re
from importlib import resources

import pytest

from waybill.contracts.states import State
from waybill.readmodel import statements
from waybill.readmodel.core.records import (
    AnomalyKind,
    AnomalyRow,
    AttemptRow,
    DeadLetterRow,
    DeliveryRow,
    MoveRow,
    StateRow,
)

MIGRATION = resources.files("waybill.readmodel.migrations").joinpath("0001_read_model.sql").read_text()


def columns(table: str) -> set[str]:
    body = re.search(rf"CREATE TABLE {{schema}}\.{table} \((.*?)\n\);", MIGRATION, re.DOTALL)
    assert body is not None
    return {name.strip('"') for name in re.findall(r"^    (\"?[a-z_0-9]+\"?) ", body[1], re.MULTILINE)} - {"PRIMARY"}


@pytest.mark.parametrize(
    ("insert", "record", "table"),
    [
        (statements.DELIVERY, DeliveryRow, "delivery"),
        (statements.STATE, StateRow, "delivery"),
        (statements.ATTEMPT, AttemptRow, "attempt"),
        (statements.MOVE, MoveRow, "move"),
        (statements.DEAD_LETTER, DeadLetterRow, "dead_letter"),
        (statements.ANOMALY, AnomalyRow, "anomaly"),
    ],
)
def test_insert_writes_every_field_of_its_record_into_a_column(
    insert: statements.Insert, record: type, table: str
) -> None:
    fields = {field.name for field in dataclasses.fields(record)}

    assert set(insert.columns) == fields
    assert fields <= columns(table)


def test_every_column_of_a_delivery_is_written_by_command_or_state() -> None:
    assert columns("delivery") == set(statements.DELIVERY.columns) | set(statements.STATE.columns)


@pytest.mark.requirement("RS-1")
@pytest.mark.parametrize(("enum", "table"), [(State, "delivery"), (AnomalyKind, "anomaly")])
def test_closed_sets_are_the_databases(enum: type[State] | type[AnomalyKind], table: str) -> None:
    body = MIGRATION[MIGRATION.index(f"CREATE TABLE {{schema}}.{table} (") :]
    listed = re.search(r"IN \(\s*('[^)]*)\)", body)
    assert listed is not None

    assert set(re.findall(r"'([a-z_]+)'", listed[1])) == {member.value for member in enum}
