"""Running a listener alone: one process, one port, uvicorn underneath.

The port is bound before anything starts, so port 0 gives a free one whose number is told once requests are taken.
SIGTERM and SIGINT stop taking new requests, let those under way finish, and close the store.
"""

import socket
import sys
from collections.abc import Callable
from typing import Any, Final

import uvicorn

from waybill.kernel.errors import UnavailableError

__all__ = ["serve"]

_GRACE_S: Final = 15


class _Server(uvicorn.Server):
    """Tells when it takes requests."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()


def serve(app: Any, *, host: str = "127.0.0.1", port: int = 0, on_start: Callable[[str], None]) -> None:
    """Serve an ASGI application until a signal ends it.

    Args:
        app: a `Listener`, or an application that one is mounted in.
        host: address to bind.
        port: 0 takes a free one.
        on_start: called with the base URL when requests are taken.

    Raises:
        UnavailableError: the port is taken, or the application did not start; says why.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
            ) from error
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        url = f"http://{shown}:{bound.getsockname()[1]}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
            lifespan="auto",
        )
        server = _Server(config, lambda: on_start(url))
        server.run(sockets=[bound])
        if not server.started:
            raise UnavailableError("the application did not start: its messages are above")
        sys.stderr.flush()
