"""Running the submission API: one process, one event loop, put together here.

It starts only when the control database answers, since without applied configuration it could take nothing. SIGTERM
ends it after the requests under way; what was not answered may be submitted again under the same key.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, Final

import psycopg
from psycopg_pool import PoolTimeout

from waybill.access import KeyAuthenticator
from waybill.access.authenticator import find_key
from waybill.fabric import ConfigFollower
from waybill.infra.clock import SystemClock
from waybill.infra.runner import calm_collector
from waybill.listener.server import serve
from waybill.submission.app import build_app
from waybill.submission.deliveries import Deliveries
from waybill.submission.outboxes import Outboxes, open_pool
from waybill.submission.rules import find_rule
from waybill.submission.submitter import Submitter

__all__ = ["run"]

_FORGET_EVERY_S: Final = 3600.0
_CONTROL_POOL: Final = 4


def run(control_dsn: str, *, host: str, port: int, on_start: Callable[[str], None]) -> None:
    """Serve until a signal ends it.

    Args:
        control_dsn: of the control database: keys, rules and applied configuration.
        host: address to bind.
        port: 0 takes a free one.
        on_start: called with the base URL when requests are taken.

    Raises:
        UnavailableError: the control database does not answer, or the port is taken.
    """
    clock = SystemClock()
    with closing(ConfigFollower(control_dsn, clock)) as follower:
        control, outboxes = open_pool(control_dsn, max_size=_CONTROL_POOL), Outboxes()
        submitter = Submitter(outboxes, follower.current, find_rule(control), clock)

        @asynccontextmanager
        async def lifespan(_app: Any) -> AsyncIterator[None]:
            await control.open()
            calm_collector()
            forgetting = asyncio.create_task(_forget(submitter))
            try:
                yield
            finally:
                forgetting.cancel()
                await outboxes.close()
                await control.close()

        app = build_app(KeyAuthenticator(find_key(control), clock), submitter, Deliveries(control), lifespan)
        serve(app, host=host, port=port, on_start=on_start)


async def _forget(submitter: Submitter) -> None:
    while True:
        await asyncio.sleep(_FORGET_EVERY_S)
        with suppress(psycopg.Error, PoolTimeout):  # an hour later is as good
            await submitter.forget()
