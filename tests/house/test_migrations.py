"""The migrations of every component are numbered 0001, 0002, … without a hole and without a number twice."""

from pathlib import Path

from waybill.infra.migrate import load


def test_every_component_numbers_its_migrations_without_a_hole(checkout: Path):
    folders = sorted((checkout / "services").rglob("migrations"))

    assert folders
    for folder in folders:
        assert load(".".join(folder.relative_to(checkout / "services").parts))
