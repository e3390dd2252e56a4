"""One attempt: render, sign, post, judge. The body is the same at every attempt; timestamp and signature are not."""

from collections.abc import Sequence
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
from waybill.delivery.failpoints import Failpoints
from waybill.egress.client import GuardedClient
from waybill.egress.outbound import Outbound
from waybill.infra.http_client import HttpLimits, PostError
from waybill.kernel.clock import Clock
from waybill.kernel.errors import InvariantBroken
from waybill.kernel.ids import DestinationName

__all__ = ["Target", "outbound_of"]

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
    return Outbound(
        destination=f"{config.tenant}/{config.name}",
        urls=(config.url,) if asked is None else tuple(dict.fromkeys((config.url, asked.url))),
        limits=limits,
        allow_networks=tenant.allow_networks if tenant is not None else (),
        tls=config.tls,
        headers=config.headers,
    )


class Target:
    """One destination as it is configured now; a change of configuration makes another one."""

    __slots__ = (
        "_clock",
        "_failpoints",
        "client",
        "config",
        "halting_on_expiry",
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
        self.url = self.config.url
        self.rule = RepeatRule.of(self.config)
        self._clock, self._failpoints = clock, failpoints

    def body_of(self, item: Item) -> bytes:
        """Return the body under which a delivery is offered, the same at every attempt.

        Raises:
            ContractError: it cannot be rendered, now or ever.
        """
        if item.is_resolution:
            return item.value or b""
        if item.command is None:
            raise InvariantBroken("attempted a delivery that was not looked into")
        return render(item.command, self.name)

    def rule_for(self, item: Item) -> RepeatRule:
        """Return by which rule an attempt may be repeated."""
        return TELLING if item.is_resolution else self.rule

    def absence_proves(self, item: Item) -> bool:
        """Whether "it is not there" proves of a delivery that it was done (AM-4)."""
        return item.command is not None and item.command.command_type in self.config.absence_proves

    async def attempt(self, item: Item, body: bytes) -> tuple[Verdict, Try]:
        """Offer a delivery once, with its body; the item is not changed."""
        command, delivery_id = item.command, item.delivery_id
        if delivery_id is None:
            raise InvariantBroken("attempted a delivery that was not looked into")
        instant = self._clock.now().timestamp()
        started = int(instant * 1000)
        timestamp = int(instant)
        headers: Sequence[tuple[str, str]] = [
            _CONTENT_TYPE,
            (ID_HEADER, delivery_id),
            (TIMESTAMP_HEADER, str(timestamp)),
            (SIGNATURE_HEADER, self.signer.sign(delivery_id, timestamp, body)),
        ]
        if command is not None and command.traceparent is not None:
            headers = [*headers, ("traceparent", command.traceparent)]
        if self._failpoints.is_set:
            self._failpoints("before_send")
        try:
            answer = await self.client.post(self.url, headers, body)
        except PostError as error:
            verdict = judge_failure(Failure(error.failure.value), error.detail)
            now = self._clock.now()
        else:
            now = self._clock.now()
            source = None if item.is_resolution else self.config.results
            verdict = accepted(answer.status, source) or judge_answer(
                answer.status,
                answer.body,
                delivery_id=delivery_id,
                proof=self.config.proof,
                wait_s=retry_after_s(answer.retry_after, now) if answer.retry_after else None,
                absence_proves=self.absence_proves(item),
            )
        if self._failpoints.is_set:
            self._failpoints("answered")
        return verdict, Try(item.attempts + 1, started, int(now.timestamp() * 1000), sha256(body).hexdigest())
