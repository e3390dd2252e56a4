"""A destination's listener as its profile says, and the client that posts to it.

It answers a repeat from its store for ever, for as long as it declares, or never. Everything else about it is bad luck on
purpose: connections that are refused or reset before or after the effect, answers that never come, requests that
arrive when their sender has given up or is dead, refusals of every kind.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from waybill.contracts.receipt import parse_receipt
from waybill.contracts.status_query import STATUS_QUERY_TYPE, Said, StatusAnswer, render_status_answer
from waybill.crypto.signing import ID_HEADER
from waybill.egress.outbound import Outbound
from waybill.infra.http_client import Answer, PostError, PostFailure
from waybill.simulator.network import Network
from waybill.simulator.process import SimProcess

__all__ = ["Fate", "Listener", "SimHttp", "Word"]

RECEIPT: Final = b'{"status":"done","source_version":"v1","evidence":"ledger:1","count":1}'
_PROBLEM: Final = b""


class Fate(StrEnum):
    """What becomes of one request."""

    #: Done and answered.
    GOOD = "good"
    #: Done and answered after longer than an attempt may stay without a row.
    SLOW = "slow"
    #: No connection: nothing was sent.
    NOT_CONNECTED = "not_connected"
    #: Refused for now; nothing was done.
    BUSY = "busy"
    #: Refused for now, with a time.
    LIMITED = "limited"
    #: An error after it was done.
    ERROR_AFTER = "error_after"
    #: The connection breaks before anything was done.
    RESET_BEFORE = "reset_before"
    #: The connection breaks after it was done.
    RESET_AFTER = "reset_after"
    #: The sender gives up; it is done much later.
    LATE = "late"
    #: The sender gives up; it never arrives.
    VANISHED = "vanished"
    #: Refused for good.
    REFUSED = "refused"
    #: The destination says that it is gone.
    GONE = "gone"


class Word(StrEnum):
    """What becomes of one question."""

    #: Answered as it is.
    TRUE = "true"
    #: It is being done, whatever is so.
    BUSY = "busy"
    #: No answer.
    SILENT = "silent"
    #: An answer to another question: that nothing was done.
    FORGED = "forged"
    #: A page of somebody in between.
    PAGE = "page"


_BAD: Final = tuple(fate for fate in Fate if fate not in {Fate.GOOD, Fate.REFUSED, Fate.GONE})
#: Those after which the listener has done it.
_DONE: Final = frozenset({Fate.GOOD, Fate.SLOW, Fate.ERROR_AFTER, Fate.RESET_AFTER, Fate.LATE})
#: Those in which a byte leaves.
_NOTHING_SENT: Final = frozenset({Fate.NOT_CONNECTED})


class Observer(Protocol):
    """Who sees attempts and effects."""

    def attempt_began(self, process: str, destination: str, delivery_id: str, body: bytes) -> None:
        """A worker calls its client: its last look was just before."""
        ...

    def attempt_ended(self, process: str, destination: str, delivery_id: str, status: int | None) -> None:
        """The client gave the worker an answer, or a failure: None."""
        ...

    def told(self, destination: str, delivery_id: str, said: Said) -> None:
        """A worker got an answer to what it asked, as it is."""
        ...

    def byte_left(self, destination: str, delivery_id: str) -> None:
        """Something of the request may have been sent."""
        ...

    def effect(self, destination: str, delivery_id: str) -> None:
        """The listener did it, as if for the first time."""
        ...


@dataclass(slots=True)
class Listener:
    """One destination's end."""

    destination: str
    observer: Observer
    network: Network
    #: How long it remembers a delivery, from its first arrival; 0 is not at all.
    memory_s: float = math.inf
    #: Deliveries done, in order, and when first.
    effects: dict[str, float] = field(default_factory=dict)
    #: Fates to come, by delivery, before chance decides.
    script: dict[str, list[Fate]] = field(default_factory=dict)
    #: What becomes of questions to come, by delivery; then they are answered as it is.
    words: dict[str, list[Word]] = field(default_factory=dict)
    #: How often each delivery was asked about.
    questions: dict[str, int] = field(default_factory=dict)

    def fate_of(self, delivery_id: str) -> Fate:
        """Return what becomes of the next request of a delivery."""
        scripted = self.script.get(delivery_id)
        if scripted:
            return scripted.pop(0)
        weather = self.network.weather
        if self.network.chance(weather.listener_fails):
            return self.network.rng.choice(_BAD)
        if self.network.chance(weather.listener_refuses):
            return Fate.REFUSED
        return Fate.GOOD

    def serve(self, delivery_id: str, fate: Fate, now: float) -> Answer | PostError:
        """Do what a request asks for, once as far as it remembers, and say what its sender gets to see."""
        is_known = delivery_id in self.effects and now - self.effects[delivery_id] < self.memory_s
        if fate in _DONE and not is_known:
            self.effects.setdefault(delivery_id, now)
            self.observer.effect(self.destination, delivery_id)
        if fate in {Fate.RESET_BEFORE, Fate.RESET_AFTER}:
            return PostError(PostFailure.READ)
        if fate is Fate.ERROR_AFTER:
            return Answer(502, _PROBLEM, None)
        if is_known or fate in _DONE:
            return Answer(200, RECEIPT, None)
        if fate is Fate.LIMITED:
            return Answer(429, _PROBLEM, "1")
        if fate is Fate.GONE:
            return Answer(410, _PROBLEM, None)
        return Answer(422 if fate is Fate.REFUSED else 503, _PROBLEM, None)

    def tell(self, query: dict[str, Any]) -> Answer | PostError:
        """Answer what became of a delivery."""
        delivery_id = query["data"]["delivery_id"]
        self.questions[delivery_id] = self.questions.get(delivery_id, 0) + 1
        scripted = self.words.get(delivery_id)
        word = scripted.pop(0) if scripted else Word.TRUE
        if word is Word.SILENT:
            return PostError(PostFailure.READ)
        if word is Word.PAGE:
            return Answer(404, b"<html>no such page</html>", None)
        is_done = delivery_id in self.effects and word is Word.TRUE
        said = Said.DONE if is_done else Said.IN_PROGRESS if word is Word.BUSY else Said.NOT_DONE
        answer = StatusAnswer(
            query_id="another" if word is Word.FORGED else query["id"],
            delivery_id=delivery_id,
            said=said,
            receipt=parse_receipt(RECEIPT) if is_done else None,
        )
        return Answer(200, render_status_answer(answer), None)


class SimHttp:
    """A process's connections to one destination."""

    def __init__(self, process: SimProcess, outbound: Outbound, listeners: dict[str, Listener]) -> None:
        self.outbound = outbound
        self._process, self._limits, self._listeners = process, outbound.limits, listeners

    async def post(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        """Send one request and return its answer.

        Raises:
            PostError: there is no whole answer.
        """
        process, listener = self._process, self._listeners[url]
        if STATUS_QUERY_TYPE.encode() in body:
            return await self._ask(listener, body)
        delivery_id = dict(headers)[ID_HEADER]
        observer, destination, who = listener.observer, listener.destination, process.who
        observer.attempt_began(who, destination, delivery_id, body)
        status: int | None = None
        try:
            await process.checkpoint()
            answer = await self._send(listener, delivery_id)
            status = answer.status
            return answer
        finally:
            if process.who == who and not process.loop.is_dead:
                observer.attempt_ended(who, destination, delivery_id, status)

    async def _ask(self, listener: Listener, body: bytes) -> Answer:
        rng = listener.network.rng

        query = json.loads(body)

        def serve(answer: Callable[[Any], None]) -> None:
            answer(listener.tell(query))

        found: Answer = await self._process.request(serve, rng.random() * 0.02, rng.random() * 0.02)
        if found.status == 200 and (document := json.loads(found.body))["query_id"] == query["id"]:
            listener.observer.told(listener.destination, query["data"]["delivery_id"], Said(document["status"]))
        return found

    async def _send(self, listener: Listener, delivery_id: str) -> Answer:
        fate, rng = listener.fate_of(delivery_id), listener.network.rng
        if fate is Fate.NOT_CONNECTED:
            await asyncio.sleep(rng.random() * 0.05)
            raise PostError(PostFailure.CONNECT)
        listener.observer.byte_left(listener.destination, delivery_id)
        there_s = rng.random() * 0.02
        if fate is Fate.SLOW:
            there_s += 2.0 + rng.random()
        elif fate is Fate.LATE:
            there_s += self._limits.total_s + rng.random() * 6.0

        def serve(answer: Callable[[Any], None]) -> None:
            if fate is not Fate.VANISHED:
                answer(listener.serve(delivery_id, fate, self._process.timeline.now))

        try:
            answer: Answer = await asyncio.wait_for(
                self._process.request(serve, there_s, rng.random() * 0.02), self._limits.total_s
            )
        except TimeoutError:
            raise PostError(PostFailure.TIMEOUT) from None
        return answer

    async def close(self) -> None:
        """Close nothing."""
