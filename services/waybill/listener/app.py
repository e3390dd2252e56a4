"""The listener as an ASGI application: handlers by command type, HTTP, health, life cycle.

One event loop; a connection per delivery under way; handlers without `async` run in threads. What a listener promises
is kept below this module, by `receiver` and `executor`: HTTP only bounds the size, names the method and reports health.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem
from waybill.contracts.receipt import CONTENT_TYPE as RECEIPT_TYPE
from waybill.crypto.signing import FileSigner, Signer
from waybill.crypto.verifying import VerificationKeys
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, FabricError, UnavailableError
from waybill.kernel.ids import DestinationName, Tenant
from waybill.listener.asgi import (
    Answer,
    BodyTooLarge,
    Headers,
    Receive,
    Scope,
    Send,
    answer_problem,
    read_body,
    send_answer,
)
from waybill.listener.core.verification import Binding, Capability, Door
from waybill.listener.executor import Handler, HandlerFunction, PolicyHook, RecoverFunction
from waybill.listener.key_source import FixedKeys, JwksFile, JwksUrl, KeySource
from waybill.listener.metrics import Meter
from waybill.listener.receiver import Heard, Limits, Receiver, word_of
from waybill.listener.stores.port import DedupStore, Effect, check_promise

__all__ = ["Listener", "purge_hourly"]

_log = logging.getLogger("waybill.listener")

H = TypeVar("H", bound=HandlerFunction)
P = TypeVar("P", bound=PolicyHook)

_HEALTH: Final = "/healthz"
_PURGE_EVERY_S: Final = 3600.0
#: When a listener with too much under way may be asked again.
_RETRY_AFTER_S: Final = "1"


class Listener:
    """An ASGI application that executes the commands of one tenant for one destination.

    Mount it anywhere in a Starlette or FastAPI application, or run it alone with `waybill listen module:listener`.
    Mounted, it opens its store with the first request; the host may call `open` and `close` from its own lifespan.

    Args:
        tenant: whose commands; others are refused with AUTHZ.
        destination: the name under which the fabric delivers here.
        keys: the tenant's public keys: a JWKS file or URL, a key source, or fixed keys.
        store: where deliveries are recorded, in the database of the business data.
        limits: tolerance and sizes, and what the fabric was told of this destination.
        clock: for tests.

    Raises:
        ConfigError: the store keeps less than the limits promise, or the policy cannot be read.
    """

    def __init__(
        self,
        *,
        tenant: str,
        destination: str,
        keys: VerificationKeys | KeySource | Path | str,
        store: DedupStore,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        #: Tells it the time.
        self.clock = clock or SystemClock()
        #: The listener's metrics; a host with a registry of its own registers this one with it.
        self.registry = CollectorRegistry()
        self._keys = _key_source(keys, self.clock)
        self._store = store
        self._limits = limits or Limits()
        #: What was promised of it: declared, or what its store keeps.
        self.profile = self._limits.profile or store.memory.profile
        check_promise(store.memory, self.profile, self._limits.retry_horizon, in_order=self._limits.in_order)
        if self._limits.policy is not None:
            self._limits.policy.current()
        self._has_policy_hook = False
        self._handlers: dict[str, Handler] = {}
        #: For whom it acts.
        self.binding = Binding(tenant=Tenant(tenant), destination=DestinationName(destination))
        #: Counts for it.
        self.meter = Meter(self.registry, self.binding.tenant, self.binding.destination)
        self._receiver = Receiver(self.binding, self._keys, store, self._handlers, self._limits, self.clock)

    def on(
        self,
        command_type: str,
        *,
        capability: str | None = None,
        versions: tuple[int, int] | None = None,
        recover: RecoverFunction | None = None,
    ) -> Callable[[H], H]:
        """Register the handler of a command type.

        The handler is called with the `Received` command and what it writes through, and returns `Done`: with
        PostgreSQL an `AsyncConnection` of psycopg, or a `BlockingTransaction` when it is not `async`; with SQLite a
        `SqliteTransaction`; with the others None. What it writes there commits together with the delivery record, or
        not at all; it must not commit by itself.

        Args:
            command_type: as producers name it; `*` for every type without a handler of its own.
            capability: refuse commands that demand another one.
            versions: lowest and highest capability version served, inclusive.
            recover: called as the handler, before it, when an earlier attempt may have acted: returns what happened,
                or None when nothing did. Needed where the store's effect is elsewhere, and nowhere else.

        Raises:
            ConfigError: the type has a handler, or `recover` is missing, or is there for nothing.
        """
        if command_type in self._handlers:
            raise ConfigError(f"command type {command_type!r} has a handler already")
        if (recover is not None) != (self._store.memory.effect is Effect.ELSEWHERE):
            raise ConfigError(
                f"command type {command_type!r}: `recover` belongs to a store with effect=Effect.ELSEWHERE, where an "
                "attempt may have acted without a record of it, and to no other"
            )

        def register(function: H) -> H:
            declared = Capability(name=capability, versions=versions)
            self._handlers[command_type] = Handler(function=function, capability=declared, recover=recover)
            return function

        return register

    def policy(self, function: P) -> P:
        """Register the policy hook: called with each `Received` command as the last check, before the handler.

        It returns a `Block`, answered POLICY_BLOCK, or None. One that raises blocks for now: the sender comes again.

        Raises:
            ConfigError: there is one.
        """
        if self._has_policy_hook:
            raise ConfigError("there is a policy hook already")
        self._has_policy_hook = True
        self._receiver.ask(function)
        return function

    def sign_receipts(self, keys: Signer | Path | str) -> None:
        """Sign each receipt with the listener's own key, so that it proves by itself who stated it.

        Args:
            keys: the `signing.json` that `waybill keys new` wrote, followed while it is rotated; or a signer.

        Raises:
            ConfigError: the file cannot be read, or no key in it is valid now.
        """
        signer = keys if isinstance(keys, Signer) else FileSigner(Path(keys))
        signer.sign("receipt", int(self.clock.now().timestamp()), b"")
        self._receiver.sign(signer)

    async def ask_baseline(self) -> str:
        """Ask for a baseline; return the nonce that the next one has to carry. Raises as `BaselineDesk.ask` does."""
        return await self._receiver.baselines.ask()

    async def open(self) -> None:
        """Open the store; raises as its `open` does."""
        await self._store.open()

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    async def purge(self) -> int:
        """Drop delivery records behind the retention; return how many. Runs hourly when the listener runs alone.

        Raises:
            UnavailableError: the store does not serve now.
        """
        try:
            return await self._store.purge(self.clock.now())
        except Exception as error:
            if self._store.is_unavailable(error):
                raise UnavailableError("the store does not serve now") from error
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            with contextlib.suppress(ConnectionError):
                await send_answer(send, await self._serve(scope, receive))
        else:
            raise ConfigError(f"a listener does not speak {scope['type']}")

    async def _serve(self, scope: Scope, receive: Receive) -> Answer:
        if scope["method"] in {"GET", "HEAD"} and scope["path"].endswith(_HEALTH):
            return await self._health()
        if scope["method"] != "POST":
            problem = Problem(code=ErrorCode.VALIDATION, reason="method", detail="deliveries are POSTed", status=405)
            return answer_problem(problem, ("allow", "POST"))
        if self.meter.in_flight >= self._limits.max_in_flight:
            problem = Problem(code=ErrorCode.RATE_LIMIT, reason="too_many", detail="too many deliveries at one time")
            self.meter.refused(problem.code.value)
            return answer_problem(problem, ("retry-after", _RETRY_AFTER_S), ("connection", "close"))
        with self.meter.measured(self.clock) as measured:
            answer = await self._take(scope, receive)
            measured.result = answer.result
            return answer

    async def hear(self, door: Door, headers: Headers, body: bytes) -> Heard:
        """Take one signed body that came by another door than HTTP; what is promised of requests holds for it.

        Raises:
            ConfigError, UnavailableError: keys or store never came up; nothing was done.
        """
        with self.meter.measured(self.clock) as measured:
            heard = await self._receiver.hear(door, headers, body)
            measured.result = word_of(heard.outcome)
            return heard

    async def _take(self, scope: Scope, receive: Receive) -> Answer:
        headers = Headers(scope["headers"])
        try:
            body = await read_body(headers, receive, self._limits.max_body_bytes)
        except BodyTooLarge:
            detail = f"at most {self._limits.max_body_bytes} bytes"
            problem = Problem(code=ErrorCode.VALIDATION, reason="too_large", detail=detail, status=413)
            return answer_problem(problem, ("connection", "close"))
        try:
            return await self._receiver.answer(headers, body)
        except (ConfigError, UnavailableError) as error:  # keys or store never came up: nothing was done
            _log.error("listener.unavailable", extra={"error": error.code, "detail": str(error)})
            problem = Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="listener_unavailable")
            return answer_problem(problem, ("retry-after", "5"))

    async def _health(self) -> Answer:
        try:
            await self._keys.current()
            await self._store.ping()
        except Exception as error:
            if not isinstance(error, FabricError) and not self._store.is_unavailable(error):
                raise
            body = json.dumps({"status": "unavailable", "error": type(error).__name__}).encode()
            return Answer(status=503, content_type=RECEIPT_TYPE, body=body)
        return Answer(status=200, content_type=RECEIPT_TYPE, body=b'{"status":"ok"}')

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except FabricError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        purging = asyncio.create_task(purge_hourly(self))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        purging.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await purging
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


async def purge_hourly(listener: Listener) -> None:
    """Drop what is behind the retention, again and again, until it is cancelled."""
    while True:
        try:
            _log.info("deliveries.purged", extra={"count": await listener.purge()})
        except UnavailableError:
            _log.warning("store.unavailable")
        await asyncio.sleep(_PURGE_EVERY_S)


def _key_source(keys: VerificationKeys | KeySource | Path | str, clock: Clock) -> KeySource:
    if isinstance(keys, VerificationKeys):
        return FixedKeys(keys)
    if isinstance(keys, str) and keys.startswith(("http://", "https://")):
        return JwksUrl(keys, clock)
    if isinstance(keys, str | Path):
        return JwksFile(keys)
    return keys
