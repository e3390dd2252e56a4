"""A closed set is written down once in Python; Avro and SQL repeat it because they must, and are compared here."""

import enum
import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import waybill
from waybill.contracts.states import FINAL, TRANSITIONS, Move, State
from waybill.kernel.lifecycle import dead_ends, unreachable

#: Avro name → Python name, where prose wants another word than code.
SPELT_OTHERWISE = {"ProofLevel": "Proof"}
#: Written and read as plain words; no decision hangs on them.
AVRO_ONLY = {"OutcomeKind"}


def python_enums() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in pkgutil.walk_packages(waybill.__path__, "waybill."):
        for name, value in vars(importlib.import_module(each.name)).items():
            if isinstance(value, type) and issubclass(value, enum.StrEnum) and value is not enum.StrEnum:
                found[name] = {str(member) for member in value}
    return found


def avro_enums(node: object) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, dict):
        if node.get("type") == "enum":
            yield node["name"].rsplit(".", 1)[-1], set(node["symbols"])
        for value in node.values():
            yield from avro_enums(value)
    elif isinstance(node, list):
        for value in node:
            yield from avro_enums(value)


@pytest.mark.requirement("RS-1")
def test_avro_enums_equal_the_python_ones(checkout: Path):
    ours, differing, seen = python_enums(), [], set()
    for file in sorted((checkout / "avro").glob("*.avsc")):
        for name, symbols in avro_enums(json.loads(file.read_text())):
            seen.add(name)
            if name not in AVRO_ONLY and ours.get(SPELT_OTHERWISE.get(name, name)) != symbols:
                differing.append(f"{file.name}: {name}")

    assert differing == []
    assert {"State", "ErrorCode", "Phase"} <= seen


def sql_lists(checkout: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Return every parenthesised list of words in a migration, with the file it stands in."""
    return [
        (f"{file.parent.parent.name}/{file.name}", tuple(re.findall(r"'(\w+)'", found)))
        for file in (checkout / "services").rglob("migrations/*.sql")
        for found in re.findall(r"\((\s*'\w+'(?:\s*,\s*'\w+')+\s*)\)", file.read_text())
    ]


@pytest.mark.requirement("RS-1")
def test_sql_lists_of_states_equal_the_python_one(checkout: Path):
    whole = {(file, words) for file, words in sql_lists(checkout) if {"queued", "acknowledged"} < set(words)}

    assert {file.split("/")[0] for file, _ in whole} >= {"delivery", "readmodel"}
    assert {file: words for file, words in whole if set(words) != set(State)} == {}


@pytest.mark.requirement("RS-2")
def test_sql_moves_equal_the_python_table(checkout: Path):
    states = set(State)
    pairs = {
        words
        for file, words in sql_lists(checkout)
        if file.startswith("delivery/") and len(words) == 2 and set(words) <= states
    }

    assert pairs == {(str(here), str(there)) for (here, _), there in TRANSITIONS.items()}


@pytest.mark.requirement("RS-1")
def test_there_are_eight_states():
    assert len(State) == 8


@pytest.mark.requirement("RS-2")
def test_every_state_is_reachable_and_only_final_ones_are_ends():
    assert unreachable(TRANSITIONS, State, State.QUEUED) == set()
    assert dead_ends(TRANSITIONS, State, FINAL) == set()
    assert {move for _, move in TRANSITIONS} == set(Move)
