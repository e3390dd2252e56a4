"""The real worker, put together on simulated clients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, cast

from waybill.contracts.codec import DECISION, AvroReader, schema_text
from waybill.contracts.decision import read_decision
from waybill.contracts.fabric import DestinationConfig, FabricConfig, OnUnsettled, Profile, Transport
from waybill.crypto.signing import Signer
from waybill.delivery import Worker, WorkerParts, WorkerSettings
from waybill.delivery.committer import Pace
from waybill.delivery.controls.traffic import MAX_IN_FLIGHT
from waybill.delivery.core.lanes import Limits
from waybill.delivery.core.records import SchemaIds
from waybill.delivery.failpoints import Failpoints
from waybill.delivery.ports import Clients
from waybill.egress.client import GuardedClient
from waybill.egress.outbound import Outbound
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka import GroupReader, TransactionalProducer
from waybill.infra.topic_reader import TopicReader
from waybill.simulator.database import Database
from waybill.simulator.handover.law import SimOffsets
from waybill.simulator.kafka_clients import SimDecisions, SimProducer, SimReader, Wire
from waybill.simulator.laws import Laws
from waybill.simulator.listener import Listener, SimHttp
from waybill.simulator.loop import ProcessEnded
from waybill.simulator.network import CALM, Network, Weather
from waybill.simulator.process import SimClock, SimProcess, SimStrand
from waybill.simulator.store import SimControls, SimStore
from waybill.simulator.tables.standing import SimStanding
from waybill.simulator.trace import Trace

__all__ = ["SCHEMA_IDS", "Setup", "Workers"]

SCHEMA_IDS: Final = SchemaIds(outcome=1, task_state=2, dead_letter=3)
_DECISIONS: Final = AvroReader(DECISION, lambda _: schema_text(DECISION))
Act = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a world consists of."""

    seed: int = 0
    workers: int = 1
    partitions: int = 1
    destinations: Sequence[str] = ("crm",)
    with_intake: bool = False
    #: Records a poll returns, and records a partition holds, at most.
    most: int = 10
    max_records: int = 4000
    concurrency: int = 8
    max_in_flight: int = MAX_IN_FLIGHT
    hot_attempts: int = 1
    total_s: float = 3.0
    session_s: float = 1.5
    #: How long after the last possible byte a destination's "not done" is final; None: it is not asked.
    settle_after_s: float | None = None
    #: What aggregates do behind a delivery that ended without acknowledgement.
    on_unsettled: OnUnsettled = OnUnsettled.HALT
    #: How its destinations are reached; over Kafka nobody ever says what became of a delivery.
    transport: Transport = Transport.HTTP
    #: Over Kafka, whether listeners read at all.
    is_reading: bool = False
    #: What its destinations can bear.
    profile: Profile = Profile.DURABLE_IDEMPOTENT
    weather: Weather = CALM
    #: (Process, step, passage) → what strikes it there: seconds frozen, None to be killed, or whatever a test does.
    strikes: Mapping[tuple[str, str, int], float | Callable[[], None] | None] = field(default_factory=dict)


class Surroundings(Protocol):
    """What workers are put into."""

    setup: Setup
    trace: Trace
    database: Database
    network: Network
    controls: SimControls
    listeners: dict[str, Listener]
    clocks: dict[str, SimClock]
    laws: Laws
    #: Whether the read model folds.
    is_folded: bool
    #: The configuration as processes see it.
    seen: FabricConfig


class _Signer(Signer):
    """Signatures are not what is simulated."""

    def __init__(self) -> None:
        super().__init__([])

    def sign(self, webhook_id: str, timestamp: int, body: bytes) -> str:
        """Sign with nothing."""
        return "v1,simulated"


class Workers:
    """Makes workers; is their source of configuration and signers."""

    def __init__(self, world: Surroundings, wire: Wire) -> None:
        self._world, self._wire = world, wire
        #: How often a process passed a step it may be struck at.
        self.passages: dict[tuple[str, str], int] = {}

    def make(self, process: SimProcess) -> Worker:
        """Make the worker of a process's life."""
        world, setup, name = self._world, self._world.setup, process.name
        settings = WorkerSettings(
            bootstrap="simulated",
            slot=name,
            with_intake=setup.with_intake,
            limits=Limits(max_records=setup.max_records, rest_s=0.1 if setup.seed % 2 else 5.0),
            pace=Pace(interval_s=0.1, max_partitions=(64, 2)[setup.seed % 2]),
            drain_s=1.0,
            max_in_flight=setup.max_in_flight,
            tick_s=0.15,
        )
        is_struck = any(key[0] == name for key in setup.strikes)
        parts = WorkerParts(
            config=self,
            signers=self,
            store=SimStore(process, world.database, world.network),
            schema_ids=SCHEMA_IDS,
            read_decision=lambda value: read_decision(value, _DECISIONS),
            clock=world.clocks[name],
            failpoints=Failpoints(self._striking(process) if is_struck else None),
            clients=self._clients(process),
            controls=world.controls,
        )
        worker = Worker(settings, parts)
        standing = SimStanding(process, world.network, world.laws, lambda: world.is_folded)
        worker.tools = replace(worker.tools, standing=standing)
        return worker

    def current(self) -> FabricConfig:
        """Return the applied configuration."""
        return self._world.seen

    def signer(self, destination: DestinationConfig) -> Signer:
        """Return who signs."""
        return _Signer()

    def _clients(self, process: SimProcess) -> Clients:
        def reader(bootstrap: str, group: str, topic: str, listener: Any, among: int = 1) -> GroupReader:
            return cast("GroupReader", SimReader(process, self._wire, group, listener))

        def producer(bootstrap: str, transactional_id: str, *, at_step: Act) -> TransactionalProducer:
            return cast("TransactionalProducer", SimProducer.connect(process, self._wire, transactional_id, at_step))

        def http(outbound: Outbound) -> GuardedClient:
            return cast("GuardedClient", SimHttp(process, outbound, self._world.listeners))

        def topics(bootstrap: str, client_id: str, **more: bool) -> TopicReader:
            return cast("TopicReader", SimDecisions(process, self._wire))

        def offsets(bootstrap: str) -> GroupOffsets:
            broker = self._wire.broker
            return cast("GroupOffsets", SimOffsets(broker.ends, is_reading=self._world.setup.is_reading))

        return Clients(
            reader=reader,
            offsets=offsets,
            producer=producer,
            http=http,
            topics=topics,
            strand=lambda _: SimStrand[Any](process),
        )

    def _striking(self, process: SimProcess) -> Act:
        strikes = self._world.setup.strikes

        def act(step: str) -> None:
            passage = self.passages[process.name, step] = self.passages.get((process.name, step), 0) + 1
            strike = (process.name, step, passage)
            if strike not in strikes:
                return
            found = strikes[strike]
            self._world.trace(process.name, f"passes {step} for the {passage}. time")
            if found is None:
                process.kill()
                raise ProcessEnded
            if callable(found):
                found()
            else:
                process.freeze(found)

        return act
