"""Plugins, and the rule about skips. Fixtures live in `fixtures/fix_<subject>.py`; every such file is loaded.

A skip is a promise not kept on this machine: its reason names the one command that would enable the test, and
where `CI=true` is set, a machine that was prepared for everything, it is a failure.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("fixtures")  # before one of them imports another
pytest_plugins = sorted(f"fixtures.{file.stem}" for file in Path(__file__).parent.glob("fixtures/fix_*.py"))


def _skips_fail() -> bool:
    return os.environ.get("CI", "").lower() == "true"


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and _skips_fail() and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped (CI=true): {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


def _rounds() -> int:
    """How often a campaign repeats each chaos test; 0 outside of one."""
    return int(os.environ.get("WAYBILL_PROVE", "0"))


@pytest.fixture
def prove_round() -> int:
    """Stands in the test's id during a campaign."""
    return 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat what depends on the moment of a kill: `make prove` runs each chaos test many times, in random order."""
    if _rounds() and "chaos" in metafunc.definition.path.parts:
        metafunc.fixturenames.append("prove_round")
        metafunc.parametrize("prove_round", range(1, _rounds() + 1))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave campaigns that take hours to `make prove`, unless they are asked for by name."""
    if config.option.markexpr or _rounds():
        return
    campaigns = [item for item in items if item.get_closest_marker("prove")]
    if campaigns:
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if item not in campaigns]
