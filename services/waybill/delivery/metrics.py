"""Metrics of the delivery worker, declared once. Labels: tenant and destination are names of the configuration."""

from typing import Final

from waybill.infra.metrics import Kind, Metric

__all__ = [
    "ATTEMPTS",
    "DEAD_LETTERS",
    "HELD_BYTES",
    "HELD_RECORDS",
    "INFLIGHT",
    "LANES",
    "LANES_HALTED",
    "METRICS",
    "PARTITIONS",
    "PARTITIONS_PAUSED",
    "ROWS_WAITING",
    "TRANSACTIONS",
    "TRANSACTION_FAILURES",
    "TRANSACTION_RECORDS",
    "TRANSACTION_SECONDS",
]

_HERE: Final = ("tenant", "destination")

ATTEMPTS: Final = Metric(
    name="waybill_delivery_attempts_total",
    kind=Kind.COUNTER,
    meaning="Attempts that ended, by result: ok or an error code.",
    labels=(*_HERE, "result"),
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
    INFLIGHT,
    LANES,
    LANES_HALTED,
    HELD_RECORDS,
    HELD_BYTES,
    ROWS_WAITING,
    PARTITIONS,
    PARTITIONS_PAUSED,
    DEAD_LETTERS,
    TRANSACTIONS,
    TRANSACTION_RECORDS,
    TRANSACTION_SECONDS,
    TRANSACTION_FAILURES,
)
