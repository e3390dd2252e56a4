"""One destination's client: requests to its urls, and to no other."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from waybill.egress.connections import Connections, Resolver
from waybill.egress.outbound import Outbound
from waybill.infra.http_client import Answer, PostError, PostFailure
from waybill.infra.resolver import resolve

__all__ = ["GuardedClient"]


class GuardedClient:
    """Posts to one destination, and only where Waybill may go."""

    def __init__(
        self, outbound: Outbound, resolver: Resolver = resolve, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Make a client; nothing is connected to yet.

        Raises:
            ConfigError: a certificate, key or secret header cannot be used; says which.
        """
        self.outbound = outbound
        self._connections = {url: Connections(url, outbound, resolver, monotonic) for url in outbound.urls}

    def post(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Coroutine[Any, Any, Answer]:
        """Send one request and return its answer.

        Raises:
            PostError: there is no whole answer; says how far it got. `REFUSED`: Waybill does not connect there.
        """
        connections = self._connections.get(url)
        if connections is None:
            raise PostError(PostFailure.UNBUILDABLE)
        return connections.post(headers, body)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(each.close() for each in self._connections.values()))
