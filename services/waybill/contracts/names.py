"""Names of topics, consumer groups and transactional producers: computed here and nowhere else."""

from typing import Final

from waybill.kernel.ids import DestinationName, Tenant

__all__ = [
    "audit_topic",
    "commands_topic",
    "config_topic",
    "dead_letters_topic",
    "decisions_topic",
    "deliveries_topic",
    "delivery_group",
    "ingress_group",
    "ingress_topic",
    "intake_group",
    "listener_group",
    "outcomes_topic",
    "read_model_group",
    "requests_group",
    "results_topic",
    "state_topic",
    "topic_prefix",
]

PREFIX: Final = "waybill"


def topic_prefix(tenant: Tenant) -> str:
    """Return what every topic of a tenant starts with, the final dot included."""
    return f"{PREFIX}.{tenant}."


def commands_topic(tenant: Tenant) -> str:
    """Commands, written by Debezium, keyed by aggregate."""
    return f"{PREFIX}.{tenant}.commands"


def outcomes_topic(tenant: Tenant) -> str:
    """Every attempt and transition, for audit."""
    return f"{PREFIX}.{tenant}.outcomes"


def state_topic(tenant: Tenant) -> str:
    """The reconciliation state of each delivery, compacted, on the command's partition."""
    return f"{PREFIX}.{tenant}.state"


def dead_letters_topic(tenant: Tenant) -> str:
    """What no automated path can settle."""
    return f"{PREFIX}.{tenant}.dead-letters"


def decisions_topic(tenant: Tenant) -> str:
    """What people decided, on the partition of the command's aggregate."""
    return f"{PREFIX}.{tenant}.decisions"


def audit_topic(tenant: Tenant) -> str:
    """Anchors of the tenant's audit chains, by the partition of the chain."""
    return f"{PREFIX}.{tenant}.audit"


def deliveries_topic(tenant: Tenant, destination: DestinationName) -> str:
    """What is handed over to one destination that takes its deliveries from Kafka, on the command's partition."""
    return f"{PREFIX}.{tenant}.deliveries.{destination}"


def results_topic(tenant: Tenant, destination: DestinationName) -> str:
    """What one destination says later of what it accepted, on the partition of the command's aggregate."""
    return f"{PREFIX}.{tenant}.results.{destination}"


def ingress_topic(tenant: Tenant) -> str:
    """Events of producers that only speak Kafka, to be copied into the outbox."""
    return f"{PREFIX}.{tenant}.ingress"


def config_topic(tenant: Tenant) -> str:
    """Applied configuration, compacted, keyed by object."""
    return f"{PREFIX}.{tenant}.config"


def delivery_group(tenant: Tenant, destination: DestinationName) -> str:
    """Return the consumer group of one destination: its offsets are its independence (GW-17)."""
    return f"{PREFIX}.{tenant}.deliver.{destination}"


def listener_group(tenant: Tenant, destination: DestinationName) -> str:
    """Return the group in which a destination's listeners read what was handed over, unless it declares another."""
    return f"{PREFIX}.{tenant}.listener.{destination}"


def intake_group(tenant: Tenant) -> str:
    """Return the one group per tenant that dead-letters what no destination can own."""
    return f"{PREFIX}.{tenant}.intake"


def ingress_group(tenant: Tenant) -> str:
    """Return the one group per tenant that copies events into the outbox."""
    return f"{PREFIX}.{tenant}.ingress"


def read_model_group(tenant: Tenant) -> str:
    """Return the group that folds commands, state and outcomes into the read model."""
    return f"{PREFIX}.{tenant}.read-model"


def requests_group(tenant: Tenant) -> str:
    """Return the group that folds commands and state into requests."""
    return f"{PREFIX}.{tenant}.requests"
