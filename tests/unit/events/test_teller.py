"""A teller waits for what is away or not allowed yet, and goes on."""

import threading
from typing import Any, cast

import psycopg
import pytest

from waybill.events.teller import Sources, Teller
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import Tenant


class Meter:
    """Notes when the events of a tenant wait."""

    def __init__(self) -> None:
        self.blocked_times = 0

    def blocked(self, tenant: str, *, is_blocked: bool) -> None:
        self.blocked_times += is_blocked


class Quick(threading.Event):
    """A stop that is never waited for long."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(0.001)


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("the server closed the connection"),
        psycopg.errors.InsufficientPrivilege("permission denied for function emit"),
        psycopg.errors.UndefinedFunction("function emit does not exist"),
        psycopg.InterfaceError("the connection is closed"),
        UnavailableError("no broker answers"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_the_database_refuses_is_waited_for(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    meter, stop, calls = Meter(), Quick(), []

    def follow(self: Teller, stop: threading.Event) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise error
        stop.set()

    monkeypatch.setattr(Teller, "_follow", follow)
    sources = Sources(
        bootstrap="127.0.0.1:1", dsn="", states=cast("Any", None), clock=cast("Any", None), meter=cast("Any", meter)
    )
    Teller(sources, Tenant("acme"), lambda: None).run(stop)

    assert (len(calls), meter.blocked_times) == (3, 2)
