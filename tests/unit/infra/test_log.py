"""Logs speak of the work; they never stop it."""

import io
import sys
from collections.abc import Iterator

import pytest
import structlog

from waybill.infra import log


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_a_closed_stream_stops_nobody() -> None:
    stream = io.StringIO()
    log.configure(stream=stream, as_json=True)
    logger = log.get_logger("delivery")
    stream.close()

    logger.warning("transaction.failed", partitions=2)

    assert stream.closed


def test_lines_go_to_what_stderr_is_at_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    log.configure(as_json=True)
    logger = log.get_logger("delivery")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    logger.info("worker.started")

    assert '"event": "worker.started"' in stream.getvalue()
