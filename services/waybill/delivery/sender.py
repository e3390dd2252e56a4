"""One attempt: render, sign, post or hand over, judge. The body is the same at every attempt; timestamp and signature are not."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final

from waybill.contracts.envelope import CONTENT_TYPE, render
from waybill.contracts.fabric import DestinationConfig, FabricConfig
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signer
from waybill.delivery.core.answer import accepted, judge_answer, retry_after_s
from waybill.delivery.core.classify import Failure, Verdict, judge_failure
from waybill.delivery.core.lanes import Item
from waybill.delivery.core.records import Recorder, Try
from waybill.delivery.core.repeats import TELLING, RepeatRule
from waybill.delivery.core.results.handover import MAX_BODY, handed_over
from waybill.delivery.core.stored import pack_record
from waybill.delivery.failpoints import Failpoints
from waybill.egress.client import GuardedClient
from waybill.egress.outbound import Outbound
from waybill.infra.http_client import Answer, HttpLimits, PostError
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ContractError, InvariantBroken
from waybill.kernel.ids import DestinationName

__all__ = ["Posting", "Target", "outbound_of"]

_CONTENT_TYPE: Final = ("content-type", CONTENT_TYPE)


def outbound_of(config: DestinationConfig, fabric: FabricConfig) -> Outbound:
    """Return what a destination's client is made from; another one is made only when this changes."""
    limits = HttpLimits(
        connect_s=config.timeouts.connect_s,
        read_s=config.timeouts.read_s,
        total_s=config.timeouts.total_s,
        connections=config.concurrency,
    )
    asked, tenant = config.status_query, fabric.tenant(config.tenant)
    urls = (config.url, asked.url if asked is not None else None)
    return Outbound(
        destination=f"{config.tenant}/{config.name}",
        urls=tuple(dict.fromkeys(url for url in urls if url is not None)),
        limits=limits,
        allow_networks=tenant.allow_networks if tenant is not None else (),
        tls=config.tls,
        headers=config.headers,
    )


class Posting:
    """One attempt from its signature to its answer."""

    __slots__ = ("answer", "body", "error", "has_ended", "headers", "started", "started_ms")

    def __init__(self, headers: Sequence[tuple[str, str]], body: bytes, started: datetime) -> None:
        self.headers, self.body, self.started = headers, body, started
        self.started_ms = int(started.timestamp() * 1000)
        #: What came back, or why nothing did; neither while it is under way, nor over Kafka.
        self.answer: Answer | None = None
        self.error: PostError | None = None
        self.has_ended = False


class Target:
    """One destination as it is configured now; a change of configuration makes another one."""

    __slots__ = (
        "_clock",
        "_failpoints",
        "_rendered",
        "client",
        "config",
        "halting_on_expiry",
        "is_told_by_rows",
        "name",
        "recorder",
        "rule",
        "signer",
        "url",
    )

    def __init__(
        self, recorder: Recorder, signer: Signer, client: GuardedClient, clock: Clock, failpoints: Failpoints
    ) -> None:
        #: Command types whose route says that an aggregate halts behind one that expired.
        self.halting_on_expiry: frozenset[str] = frozenset()
        self.recorder, self.signer, self.client = recorder, signer, client
        self.config = recorder.config
        self.name = DestinationName(self.config.name)
        self.url = self.config.url or ""
        self.rule = RepeatRule.of(self.config)
        #: Whether a row or an intent is written before anything of a delivery leaves: who finds neither knows that
        #: nothing did.
        self.is_told_by_rows = self.config.is_handed_over or self.rule.needs_intent
        self._clock, self._failpoints = clock, failpoints
        #: What was just to be handed over, and its body: the row is written next, and rendering takes its time.
        self._rendered: tuple[Item, bytes] | None = None

    def body_of(self, item: Item) -> bytes:
        """Return the body under which a delivery is offered, the same at every attempt.

        Raises:
            ContractError: it cannot be rendered or handed over, now or ever.
        """
        if item.is_resolution:
            return item.value or b""
        if item.command is None:
            raise InvariantBroken("attempted a delivery that was not looked into")
        body = render(item.command, self.name, item.delivery_id)
        if self.config.is_handed_over and len(body) > MAX_BODY:
            raise ContractError(f"a body of {len(body)} bytes cannot be handed over, at most {MAX_BODY} can")
        return body

    def rule_for(self, item: Item) -> RepeatRule:
        """Return by which rule an attempt may be repeated."""
        return TELLING if item.is_resolution else self.rule

    def absence_proves(self, item: Item) -> bool:
        """Whether "it is not there" proves of a delivery that it was done (AM-4)."""
        return item.command is not None and item.command.command_type in self.config.absence_proves

    async def attempt(self, item: Item, body: bytes) -> tuple[Verdict, Try]:
        """Offer a delivery once, with its body; the item is not changed. Over Kafka nothing leaves yet: the row does it."""
        posting = self.begin(item, body)
        await self.post(posting)
        return self.judge(item, posting)

    def begin(self, item: Item, body: bytes) -> Posting:
        """Sign what is about to be sent: it must leave at once."""
        instant = self._clock.now()
        headers = () if self.config.is_handed_over else self._headers(item, int(instant.timestamp()), body)
        return Posting(headers, body, instant)

    async def post(self, posting: Posting) -> None:
        """Send it and wait for what comes back; whatever that is, it is kept in the posting."""
        if self.config.is_handed_over:
            await asyncio.sleep(0)  # no request is waited for: others get their turn here
            posting.has_ended = True
            return
        if self._failpoints.is_set:
            self._failpoints("before_send")
        try:
            posting.answer = await self.client.post(self.url, posting.headers, posting.body)
        except PostError as error:
            posting.error = error
        posting.has_ended = True
        if self._failpoints.is_set:
            self._failpoints("answered")

    def judge(self, item: Item, posting: Posting) -> tuple[Verdict, Try]:
        """Judge what came back; also what is written down about the attempt."""
        answer, error, body = posting.answer, posting.error, posting.body
        now, digest = self._clock.now(), sha256(body).hexdigest()
        if answer is not None:
            source = None if item.is_resolution else self.config.results
            verdict = accepted(answer.status, source) or judge_answer(
                answer.status,
                answer.body,
                delivery_id=item.delivery_id or "",
                proof=self.config.proof,
                wait_s=retry_after_s(answer.retry_after, now) if answer.retry_after else None,
                absence_proves=self.absence_proves(item),
            )
        elif error is not None:
            verdict = judge_failure(Failure(error.failure.value), error.detail)
        else:  # the row that is written next carries it, and rendering takes its time
            self._rendered = (item, body)
            verdict, now = handed_over(item, posting.started), posting.started
        return verdict, Try(item.attempts + 1, posting.started_ms, int(now.timestamp() * 1000), digest)

    def envelope(self, item: Item, attempt: Try, verdict: Verdict | None) -> bytes | None:
        """Return the record by which a delivery is handed over, packed; None where an attempt did not come to that.

        It is signed once and kept in the row: whoever publishes it again publishes the same bytes.
        """
        if not self.config.is_handed_over or attempt.number == 0 or verdict is None or verdict.code is not None:
            return None
        known, body = self._rendered or (None, b"")
        if known is not item:  # its attempt was another owner's
            body = self.body_of(item)
        headers = self._headers(item, attempt.started_ms // 1000, body)
        return pack_record(item.aggregate.encode(), [(name, value.encode()) for name, value in headers], body)

    def _headers(self, item: Item, timestamp: int, body: bytes) -> Sequence[tuple[str, str]]:
        """Return what goes with a body, over HTTP and over Kafka."""
        command, delivery_id = item.command, item.delivery_id
        if delivery_id is None:
            raise InvariantBroken("attempted a delivery that was not looked into")
        headers = [
            _CONTENT_TYPE,
            (ID_HEADER, delivery_id),
            (TIMESTAMP_HEADER, str(timestamp)),
            (SIGNATURE_HEADER, self.signer.sign(delivery_id, timestamp, body)),
        ]
        if command is not None and command.traceparent is not None:
            headers.append(("traceparent", command.traceparent))
        return headers
