"""Metrics of the delivery worker, declared once. Labels: tenant and destination are names of the configuration."""

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry

from waybill.delivery.committer import Committer
from waybill.delivery.controls.valve import Kept
from waybill.delivery.group import DestinationGroup
from waybill.delivery.intake import Intake
from waybill.infra.metrics import Kind, Metric, build

__all__ = [
    "ATTEMPTS",
    "DEAD_LETTERS",
    "HELD_BACK",
    "HELD_BYTES",
    "HELD_RECORDS",
    "INFLIGHT",
    "LANES",
    "LANES_HALTED",
    "METRICS",
    "PARTITIONS",
    "PARTITIONS_OLD",
    "PARTITIONS_PAUSED",
    "PARTITIONS_REWOUND",
    "PARTITIONS_STUCK",
    "RESULTS",
    "ROWS_WAITING",
    "TRANSACTIONS",
    "TRANSACTION_FAILURES",
    "TRANSACTION_RECORDS",
    "TRANSACTION_SECONDS",
    "Meter",
]

_HERE: Final = ("tenant", "destination")

ATTEMPTS: Final = Metric(
    name="waybill_delivery_attempts_total",
    kind=Kind.COUNTER,
    meaning="Attempts that ended, by result: ok, accepted or an error code.",
    labels=(*_HERE, "result"),
)
RESULTS: Final = Metric(
    name="waybill_delivery_results_total",
    kind=Kind.COUNTER,
    meaning="Results of a destination by what became of them: settled, late or refused.",
    labels=(*_HERE, "became"),
)
INFLIGHT: Final = Metric(
    name="waybill_delivery_inflight_attempts", kind=Kind.GAUGE, meaning="Attempts under way.", labels=_HERE
)
LANES: Final = Metric(
    name="waybill_delivery_lanes", kind=Kind.GAUGE, meaning="Aggregates with work held here.", labels=_HERE
)
LANES_HALTED: Final = Metric(
    name="waybill_delivery_lanes_halted",
    kind=Kind.GAUGE,
    meaning="Aggregates that wait for people behind a delivery that ended without acknowledgement.",
    labels=_HERE,
)
HELD_RECORDS: Final = Metric(
    name="waybill_delivery_held_records", kind=Kind.GAUGE, meaning="Records held in memory.", labels=_HERE
)
HELD_BYTES: Final = Metric(
    name="waybill_delivery_held_bytes", kind=Kind.GAUGE, meaning="Bytes of records held in memory.", labels=_HERE
)
ROWS_WAITING: Final = Metric(
    name="waybill_delivery_rows_waiting",
    kind=Kind.GAUGE,
    meaning="Rows that wait to be written or moved; grows while the control database is away.",
    labels=_HERE,
)
PARTITIONS: Final = Metric(
    name="waybill_delivery_partitions", kind=Kind.GAUGE, meaning="Partitions taken.", labels=_HERE
)
PARTITIONS_PAUSED: Final = Metric(
    name="waybill_delivery_partitions_paused",
    kind=Kind.GAUGE,
    meaning="Partitions not read because the bound of what is held is reached.",
    labels=_HERE,
)
HELD_BACK: Final = Metric(
    name="waybill_delivery_destination_held_back",
    kind=Kind.GAUGE,
    meaning="1 while no attempt starts at a destination, by why.",
    labels=(*_HERE, "why"),
)
PARTITIONS_STUCK: Final = Metric(
    name="waybill_delivery_partitions_stuck",
    kind=Kind.GAUGE,
    meaning="Partitions that could go on and do not, for no known reason.",
    labels=_HERE,
)
PARTITIONS_REWOUND: Final = Metric(
    name="waybill_delivery_partitions_rewound",
    kind=Kind.GAUGE,
    meaning="Partitions that stand still because the control database was set back: run `waybill tasks rebuild`.",
    labels=_HERE,
)
PARTITIONS_OLD: Final = Metric(
    name="waybill_delivery_partitions_old",
    kind=Kind.GAUGE,
    meaning="Partitions that hold back records half as old as `commands` keeps them; they are becoming rows.",
    labels=_HERE,
)
DEAD_LETTERS: Final = Metric(
    name="waybill_intake_dead_letters_total",
    kind=Kind.COUNTER,
    meaning="Records and deliveries that no destination can own, by cause.",
    labels=("tenant", "cause"),
)
TRANSACTIONS: Final = Metric(
    name="waybill_commit_transactions_total", kind=Kind.COUNTER, meaning="Kafka transactions committed."
)
TRANSACTION_RECORDS: Final = Metric(
    name="waybill_commit_records_total", kind=Kind.COUNTER, meaning="Records written in transactions."
)
TRANSACTION_SECONDS: Final = Metric(
    name="waybill_commit_seconds_total", kind=Kind.COUNTER, meaning="Seconds spent in committed transactions."
)
TRANSACTION_FAILURES: Final = Metric(
    name="waybill_commit_failures_total", kind=Kind.COUNTER, meaning="Kafka transactions that were tried again."
)

METRICS: Final = (
    ATTEMPTS,
    RESULTS,
    INFLIGHT,
    LANES,
    LANES_HALTED,
    HELD_RECORDS,
    HELD_BYTES,
    ROWS_WAITING,
    PARTITIONS,
    PARTITIONS_PAUSED,
    HELD_BACK,
    PARTITIONS_STUCK,
    PARTITIONS_REWOUND,
    PARTITIONS_OLD,
    DEAD_LETTERS,
    TRANSACTIONS,
    TRANSACTION_RECORDS,
    TRANSACTION_SECONDS,
    TRANSACTION_FAILURES,
)


class Meter:
    """Brings the collectors up to what the worker's parts counted; called twice a second, not per delivery."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collectors: dict[str, Any] = {metric.name: build(metric, registry) for metric in METRICS}
        self._said: dict[tuple[str, ...], float] = {}

    def measure(
        self,
        groups: Mapping[tuple[str, str], DestinationGroup],
        intakes: Mapping[str, Intake],
        committer: Committer | None,
        stuck: Mapping[tuple[str, str], int],
        old: Mapping[tuple[str, str], int],
    ) -> None:
        """Read every part once."""
        for here, group in groups.items():
            self._group(here, group)
            self._set(PARTITIONS_STUCK, here, stuck.get(here, 0))
            self._set(PARTITIONS_OLD, here, old.get(here, 0))
        for tenant, intake in intakes.items():
            for cause, count in intake.letters.items():
                self._count(DEAD_LETTERS, (tenant, cause), count)
        if committer is not None:
            self._count(TRANSACTIONS, (), committer.transactions)
            self._count(TRANSACTION_RECORDS, (), committer.records)
            self._count(TRANSACTION_SECONDS, (), committer.seconds)
            self._count(TRANSACTION_FAILURES, (), committer.failures)

    def _group(self, here: tuple[str, str], group: DestinationGroup) -> None:
        actors = list(group.actors.values())
        gauges: tuple[tuple[Metric, float], ...] = (
            (INFLIGHT, group.senders.inflight),
            (LANES, sum(len(actor.lanes.lanes) for actor in actors)),
            (LANES_HALTED, sum(sum(lane.halted for lane in actor.lanes.lanes.values()) for actor in actors)),
            (HELD_RECORDS, sum(actor.lanes.memory.records for actor in actors)),
            (HELD_BYTES, sum(actor.lanes.memory.size for actor in actors)),
            (ROWS_WAITING, sum(actor.settler.rows.waiting for actor in actors)),
            (PARTITIONS, sum(actor.is_taken for actor in actors)),
            (PARTITIONS_PAUSED, sum(actor.is_held for actor in actors)),
            (PARTITIONS_REWOUND, sum(actor.problem is not None for actor in actors)),
        )
        for metric, value in gauges:
            self._set(metric, here, value)
        for why in Kept:
            self._set(HELD_BACK, (*here, why.value), group.senders.valve.why is why)
        for result, count in group.counts.items():
            self._count(ATTEMPTS, (*here, result), count)
        for became, count in group.results.items():
            self._count(RESULTS, (*here, became), count)

    def _set(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """Set a gauge where it changed: hundreds of destinations have thousands that do not."""
        key = (metric.name, *labels)
        if self._said.get(key) != value:
            self._said[key] = value
            self._collectors[metric.name].labels(*labels).set(value)

    def _count(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """Bring a counter up to a running total; a part that started anew begins at 0 again."""
        key = (metric.name, *labels)
        before = self._said.get(key)
        if before == value:
            return
        before, collector = before or 0.0, self._collectors[metric.name]
        (collector.labels(*labels) if labels else collector).inc(value - before if value >= before else value)
        self._said[key] = value
