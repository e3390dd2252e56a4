"""Follow the applied configuration while running: ask once a second, keep the last known when nobody answers.

One daemon thread owns one connection. A change reaches `current`, waiters and subscribers within about a second of
its commit; while the database is away the last known configuration stays in force, since a fabric that stopped
because it could not read its settings would be less safe than one that goes on with those it was given. What a
subscriber raises is logged and does not stop the following; what cannot be read (a newer waybill wrote it) is logged
and waits for the next version.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
import structlog

from waybill.contracts.fabric import FabricConfig
from waybill.fabric.store import load_applied, newest_version
from waybill.infra.postgres import connect
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["ConfigFollower"]

POLL_S: Final = 1.0

log = structlog.get_logger(__name__)


class ConfigFollower:
    """The newest applied configuration, from any thread."""

    def __init__(self, dsn: str, clock: Clock, *, poll_s: float = POLL_S) -> None:
        """Read the configuration once, then follow it.

        Args:
            dsn: of the control database; the role needs no more than `waybill_worker` has.
            clock: measures waits and how old the last answer is.
            poll_s: seconds between two questions.

        Raises:
            UnavailableError: the database does not answer now, or `waybill migrate` never ran there.
            ConfigError: what is applied is not readable by this version.
        """
        self._dsn = dsn
        self._clock = clock
        self._poll_s = poll_s
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._subscribers: list[Callable[[FabricConfig], object]] = []
        self._unreadable = 0
        self._connection: psycopg.Connection[Any] | None = self._connect()
        try:
            self._config = self._load(self._connection)
        except BaseException:
            self._hang_up()
            raise
        self._answered = clock.monotonic()
        self._thread = threading.Thread(target=self._follow, name="waybill-config", daemon=True)
        self._thread.start()

    def current(self) -> FabricConfig:
        """Return the newest configuration known; version 0 before the first apply."""
        with self._changed:
            return self._config

    def age_s(self) -> float:
        """Return the seconds since the database last answered: how old `current` may be."""
        with self._changed:
            return self._clock.monotonic() - self._answered

    def wait_for(self, version: int, timeout_s: float) -> FabricConfig | None:
        """Wait until at least `version` is known; None when `timeout_s` passes first or the follower closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._config.version >= version or self._stop.is_set(), timeout_s)
            return self._config if self._config.version >= version else None

    def subscribe(self, callback: Callable[[FabricConfig], object]) -> None:
        """Call `callback` with each newer configuration, on the follower's thread: hand over, do not work there.

        Versions only rise; one that was followed at once by another may be skipped. The caller reads `current` after
        subscribing to miss nothing.
        """
        with self._changed:
            self._subscribers.append(callback)

    def close(self) -> None:
        """Stop following and let waiters go; safe to repeat."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _follow(self) -> None:
        try:
            while not self._stop.wait(self._poll_s):
                self._ask()
        finally:
            self._hang_up()

    def _ask(self) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
                log.info("config.database_back", version=self._config.version)
            self._look(self._connection)
        except (psycopg.Error, UnavailableError) as error:
            if self._connection is not None:
                log.warning("config.database_away", version=self._config.version, reason=type(error).__name__)
            self._hang_up()
            return
        with self._changed:
            self._answered = self._clock.monotonic()

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        newest = newest_version(connection)
        if newest <= max(self._config.version, self._unreadable):
            return
        try:
            self._take(self._load(connection))
        except ConfigError as error:
            self._unreadable = newest
            log.warning("config.unreadable", version=newest, kept=self._config.version, reason=str(error))

    def _take(self, config: FabricConfig) -> None:
        with self._changed:
            self._config = config
            subscribers = tuple(self._subscribers)
            self._changed.notify_all()
        log.info("config.followed", version=config.version)
        for callback in subscribers:
            try:
                callback(config)
            except Exception:  # a subscriber's bug must not stop everybody's configuration
                log.exception("config.subscriber_failed", version=config.version)

    def _connect(self) -> psycopg.Connection[Any]:
        return connect(self._dsn, application_name="waybill-config", autocommit=True)

    def _load(self, connection: psycopg.Connection[Any]) -> FabricConfig:
        try:
            return load_applied(connection)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise UnavailableError(
                "the control database has no applied configuration: run `waybill migrate`"
            ) from error

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
