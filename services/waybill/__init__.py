"""Waybill: a delivery fabric for commands that must not be lost, doubled or reordered.

A producer commits a command in its own PostgreSQL transaction. Debezium carries the outbox row to the
tenant's topic. A delivery worker per destination keeps the order of each aggregate, signs, delivers,
retries what is classified transient, and records what happened. Delivery is at least once; the effect at
a listener happens once because the listener remembers delivery identifiers.

`docs/architecture.md` draws the whole; each component's package docstring says what it promises.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("waybill")
except PackageNotFoundError:  # pragma: no cover - a source tree that was never installed
    __version__ = "0.0.0"

__all__ = ["__version__"]
