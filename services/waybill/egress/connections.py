"""The connections to one url, made only to addresses that were judged.

Invariant: the HTTP client below never resolves a name by itself. It is made for one address (a pin), or for a url whose
host is an address. So the address that was judged is the one connected to,
whatever DNS says a moment later.

A pin is looked at again every half minute, and after a connection that could not be made, while requests go on with
the old one: it was judged, and its kept connections are good. It stays as long as the name still leads to it. When
nobody answers for the name, it stays too. When any answer is forbidden, nothing is sent until that has changed.
Certificates and secret headers are read again at the same time, so that a renewed one is used without a restart.

What breaks without this module: a name that leads to 10.0.0.5, to this machine or to a metadata service gets a signed
request from inside the network.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from waybill.egress.core.addresses import EgressRule, read_network
from waybill.egress.core.targets import Refused, Target, advice, judge_addresses, judge_url
from waybill.egress.outbound import Outbound, read_way
from waybill.infra.http_client import Answer, HttpClient, Pin, PostError, PostFailure, host_of
from waybill.infra.log import get_logger
from waybill.infra.resolver import resolve
from waybill.kernel.errors import ConfigError

__all__ = ["Connections", "Resolver"]

Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
#: How often a name is looked up again.
RENEW_S: Final = 30.0
#: No more often than this, whatever fails.
PAUSE_S: Final = 1.0

_NEVER_CONNECTED: Final = frozenset({PostFailure.CONNECT, PostFailure.CONNECT_TIMEOUT})


class Connections:
    """Posts to one url, and only where Waybill may go."""

    def __init__(
        self,
        url: str,
        outbound: Outbound,
        resolver: Resolver = resolve,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Get ready; nothing is connected to yet.

        Raises:
            ConfigError: a certificate, key or secret header cannot be used; says which.
        """
        self._url, self._outbound = url, outbound
        self._resolver, self._monotonic = resolver, monotonic
        self._allowed = tuple(read_network(text) for text in outbound.allow_networks)
        self._log = get_logger("egress").bind(destination=outbound.destination)
        self._client: HttpClient | None = None
        #: Why nothing is sent while there is no client.
        self._why = (PostFailure.CONNECT, "name_not_resolved")
        #: The name to look up; empty when the url holds an address.
        self._host = ""
        self._way = read_way(outbound)
        #: The address that could not be connected to last.
        self._dead = ""
        self._looked_at = self._look_at = -PAUSE_S
        self._looking: asyncio.Task[None] | None = None
        self._former: set[asyncio.Task[None]] = set()
        self._begin()

    def _begin(self) -> None:
        judged = judge_url(self._url, self._allowed)
        if isinstance(judged, Target) and judged.address is None:
            self._host = judged.host
            if host_of(self._url) == judged.host:
                return
            judged = Refused(rule=EgressRule.SPELLING, where=judged.host)  # the client below reads another host
        if isinstance(judged, Refused):
            self._look_at = float("inf")
            self._refuse(judged)
        else:
            self._look_at = self._monotonic() + RENEW_S if self._outbound.refers else float("inf")
            self._client = HttpClient(self._outbound.limits, self._way)

    async def post(self, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        """Send one request and return its answer.

        Raises:
            PostError: there is no whole answer; says how far it got. `REFUSED`: Waybill does not connect there.
        """
        if self._monotonic() >= self._look_at:
            self._look()
        client = self._client
        if client is None:
            return await self._post_when_known(headers, body)
        try:
            return await client.post(self._url, headers, body)
        except PostError as error:
            if error.failure in _NEVER_CONNECTED:
                self._unreachable(client)
            raise

    async def close(self) -> None:
        """Close all connections."""
        closing = [task for task in (self._looking, *self._former) if task is not None]
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    async def _post_when_known(self, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        """Send a request once the name was looked up; both together take no longer than an attempt may."""
        try:
            async with asyncio.timeout(self._outbound.limits.total_s):
                if self._looking is not None:
                    await asyncio.wait([self._looking])  # it goes on whatever becomes of this request
                if self._client is None:
                    raise PostError(*self._why)
                return await self._client.post(self._url, headers, body)
        except TimeoutError:
            raise PostError(PostFailure.TIMEOUT) from None

    def _unreachable(self, client: HttpClient) -> None:
        """Look for another address soon."""
        if self._host and client is self._client:
            self._dead = self._way.pin.address if self._way.pin else ""
            self._look_at = min(self._look_at, self._looked_at + PAUSE_S)

    def _look(self) -> None:
        """Look the name up, unless that is being done."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._renew())
            self._looking.add_done_callback(self._looked)

    def _looked(self, task: "asyncio.Task[None]") -> None:
        self._looking = None
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "a look-up ended", "exception": error, "task": task})

    async def _renew(self) -> None:
        self._looked_at = self._monotonic()
        addresses = await self._addresses() if self._host else ()
        self._look_at = self._monotonic() + PAUSE_S
        if self._host and not addresses:
            self._log.info("egress.not_resolved", host=self._host)
        elif refused := judge_addresses(addresses, self._allowed):
            self._refuse(refused)
        else:
            self._look_at += RENEW_S - PAUSE_S
            self._go(addresses)

    async def _addresses(self) -> Sequence[str]:
        try:
            return await asyncio.wait_for(self._resolver(self._host), self._outbound.limits.connect_s)
        except OSError:  # a timeout too
            return ()

    def _go(self, addresses: Sequence[str]) -> None:
        """Use what was found from now on; connections are kept where nothing changed."""
        try:
            way = replace(read_way(self._outbound), pin=self._pin(addresses))
            if self._client is None or way != self._way:
                self._replace(HttpClient(self._outbound.limits, way))
                self._way = way
        except ConfigError as error:
            self._log.warning("egress.kept", reason=str(error))
        self._dead = ""

    def _pin(self, addresses: Sequence[str]) -> Pin | None:
        """Keep the address while the name still leads to it; take the next one when it cannot be reached."""
        if not addresses:
            return None
        pin = self._way.pin
        if pin is not None and pin.address in addresses and pin.address != self._dead:
            return pin
        return Pin(self._host, next((each for each in addresses if each != self._dead), addresses[0]))

    def _refuse(self, refused: Refused) -> None:
        why = (PostFailure.REFUSED, f"egress_{refused.rule}")
        if why != self._why:
            self._log.warning(
                "egress.refused", rule=refused.rule.value, where=refused.where, advice=advice(refused.rule)
            )
        self._why = why
        self._replace(None)

    def _replace(self, client: HttpClient | None) -> None:
        """Use another client from now on; the former one is closed when its last request has ended."""
        former, self._client = self._client, client
        if former is not None:
            wait_s = self._outbound.limits.total_s + PAUSE_S
            task = asyncio.get_running_loop().create_task(_close_after(former, wait_s))
            self._former.add(task)
            task.add_done_callback(self._former.discard)


async def _close_after(client: HttpClient, wait_s: float) -> None:
    try:
        await asyncio.sleep(wait_s)
    finally:
        await client.close()
