"""Logs: one JSON object a line on stderr, or coloured text on a terminal; event names, ids, never payloads.

`is_debug` is what a hot path asks once: events that would cost one call per delivery are written at debug only.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO, cast

import structlog

__all__ = ["configure", "get_logger", "is_debug", "silenced"]

_state = {"level": logging.INFO}


class _Lines:
    """Writes lines to a stream, by default to whatever stderr is at that moment.

    A log that cannot be written (a full disk, a closed pipe) never stops the work it speaks of.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream: Final = stream

    def msg(self, message: str) -> None:
        """Write one line and flush it."""
        target = self._stream or sys.stderr
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            target.write(message + "\n")
            target.flush()

    log = debug = info = warning = error = critical = exception = fatal = msg


def configure(*, level: str = "info", stream: TextIO | None = None, as_json: bool | None = None) -> None:
    """Set the process's log level and form; JSON unless the stream is a terminal."""
    target = stream or sys.stderr
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    _state["level"] = number
    render_json = as_json if as_json is not None else not target.isatty()
    renderer: Any = structlog.processors.JSONRenderer() if render_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=False,
    )


def get_logger(component: str) -> structlog.typing.FilteringBoundLogger:
    """Return a logger that names its component."""
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger(component=component))


def is_debug() -> bool:
    """Whether debug events are written."""
    return _state["level"] <= logging.DEBUG


@contextmanager
def silenced() -> Iterator[None]:
    """Let loggers that are made inside say only what is critical."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
