"""Logs: one JSON object a line on stderr, or coloured text on a terminal; event names, ids, never payloads.

`is_debug` is what a hot path asks once: events that would cost one call per delivery are written at debug only.
"""

import logging
import sys
from typing import Any, TextIO, cast

import structlog

__all__ = ["configure", "get_logger", "is_debug"]

_state = {"level": logging.INFO}


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
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )


def get_logger(component: str) -> structlog.typing.FilteringBoundLogger:
    """Return a logger that names its component."""
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger(component=component))


def is_debug() -> bool:
    """Whether debug events are written."""
    return _state["level"] <= logging.DEBUG
