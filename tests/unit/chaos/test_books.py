"""Books are read as they were written, half lines left out."""

import json
from pathlib import Path

import pytest

from waybill.chaos.books import lines, read_books, read_ledger
from waybill.chaos.core.verdict import judge

ARRIVAL = {
    "at": 1.0, "destination": "register", "delivery_id": "d-1", "aggregate": "thing/run-1", "sequence": 1,
    "body": "x", "signed_at": 1, "mischief": None,
}  # fmt: skip


def write(path: Path, *entries: object) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A campaign with one delivery, and an arrival of an earlier campaign."""
    write(tmp_path / "ledger.jsonl", {"n": 1, **ARRIVAL}, {"n": 2, **ARRIVAL, "aggregate": "thing/old-1"}, {"done": 1})
    write(tmp_path / "promised.jsonl", {k: ARRIVAL[k] for k in ("delivery_id", "destination", "aggregate", "sequence")})
    write(
        tmp_path / "exchanges.jsonl",
        {"at": 1.0, "until": 2.0, "port": 7, "destination": "register", "delivery_id": "d-1", "mischief": None},
    )
    write(
        tmp_path / "faults.jsonl", {"kind": "worker_kill", "target": "worker-0", "at": 1.5, "until": 3.0, "ports": [7]}
    )
    (tmp_path / "states.json").write_text(json.dumps({"d-1": "acknowledged"}))
    (tmp_path / "unread.json").write_text(json.dumps({"register": 0}))
    campaign = {
        "aggregate_prefix": "thing/run-",
        "destinations": {"register": {"profile": "durable_idempotent", "on_unsettled": "halt"}},
        "demands": {"faults": {"worker_kill": 1}, "hit_in_flight": 1, "deliveries": 1, "aggregates": 1},
    }
    (tmp_path / "campaign.json").write_text(json.dumps(campaign))
    return tmp_path


def test_the_books_of_a_folder_are_judged(folder: Path):
    verdict = judge(read_books(folder))

    assert verdict.ok, verdict.reasons
    assert (verdict.promised, verdict.arrivals, verdict.effects, verdict.hit_in_flight) == (1, 1, 1, 1)


def test_an_effect_has_the_place_of_its_own_line(folder: Path):
    first, second = read_ledger(folder / "ledger.jsonl")

    assert (first.place, first.done_place) == (0, 2)
    assert (second.place, second.done_place) == (1, None)


def test_half_a_line_at_the_end_is_no_line(folder: Path):
    with (folder / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"done": 2')

    assert len(list(lines(folder / "ledger.jsonl"))) == 3


def test_a_book_that_nobody_began_is_empty(tmp_path: Path):
    assert list(lines(tmp_path / "faults.jsonl")) == []
