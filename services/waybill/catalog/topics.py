"""Topics of a tenant: load the files, ask the brokers, carry out the plan."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from waybill.catalog.core.declaration import TopicDeclaration, parse_topic
from waybill.catalog.core.plan import Action, LiveTopic, TopicChange, plan
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.resources import resource_dir
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import NAME_PATTERN

__all__ = ["apply_topics", "load_topics", "plan_topics", "topics_of"]


def load_topics(folder: Path | None = None) -> list[TopicDeclaration]:
    """Read every topic file of a folder, by default this installation's `topics/`; `commands` comes first.

    Raises:
        ConfigError: every fault of every file, one line each.
    """
    place = folder or resource_dir("topics")
    found: list[TopicDeclaration] = []
    faults: list[str] = []
    for file in sorted(place.glob("*.yaml"), key=lambda path: (path.stem != "commands", path.stem)):
        try:
            found.append(parse_topic(file.read_text(encoding="utf-8"), f"{place.name}/{file.name}"))
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    if not found:
        raise ConfigError(f"{place}: no topic file; expected commands.yaml and others")
    return found


def topics_of(
    declared: Iterable[TopicDeclaration],
    results_of: Iterable[str] = (),
    handed_to: Iterable[str] = (),
    asked_for: Collection[str] = (),
) -> list[TopicDeclaration]:
    """Return the topics of a tenant: those each has, and for some of its destinations their own.

    Args:
        declared: every topic file.
        results_of: names of the destinations that say later what they did.
        handed_to: names of those among them that take their deliveries from Kafka.
        asked_for: names of the topics the tenant asks for; it has no other optional one.
    """
    needing = {"results": tuple(results_of), "deliveries": tuple(handed_to)}
    found = list(declared)
    own = [
        topic.for_destination(name)
        for topic in found
        if topic.is_per_destination
        for name in needing.get(topic.name, ())
    ]
    common = [topic for topic in found if not topic.is_per_destination]
    return [topic for topic in common if not topic.is_optional or topic.name in asked_for] + own


def plan_topics(
    admin: KafkaAdmin,
    tenant: str,
    partitions: int | None = None,
    *,
    declared: Sequence[TopicDeclaration] | None = None,
) -> list[TopicChange]:
    """Return what apply would do for a tenant.

    Args:
        admin: the brokers.
        tenant: whose topics; need not be known to anything yet.
        partitions: asked count; None takes what the tenant has, or 6 for a new one.
        declared: instead of this installation's files.

    Raises:
        ConfigError: the tenant's name or the count cannot be used, or a file is wrong.
    """
    if not NAME_PATTERN.match(tenant):
        raise ConfigError(f"tenant {tenant!r}: expected {NAME_PATTERN.pattern}")
    if partitions is not None and not 1 <= partitions <= 1000:
        raise ConfigError(f"partitions: expected 1 to 1000, got {partitions}")
    declarations = topics_of(load_topics()) if declared is None else list(declared)
    facts = admin.topics(declaration.topic(tenant) for declaration in declarations)
    live = {
        name: LiveTopic(partitions=fact.partitions, replication=fact.replication, configs=fact.configs)
        for name, fact in facts.items()
    }
    return plan(declarations, tenant, partitions=partitions, brokers=admin.brokers(), live=live)


def apply_topics(
    admin: KafkaAdmin,
    tenant: str,
    partitions: int | None = None,
    *,
    declared: Sequence[TopicDeclaration] | None = None,
) -> list[TopicChange]:
    """Carry out the plan and return it. Idempotent: a second call returns only what is kept.

    Nothing is deleted or shrunk; see `plan_topics` for arguments and errors.
    """
    changes = plan_topics(admin, tenant, partitions, declared=declared)
    for change in changes:
        if change.action is Action.CREATE:
            assert change.configs is not None
            admin.create(
                change.topic, partitions=change.partitions, replication=change.replication, configs=change.configs
            )
    altered: dict[str, dict[str, str]] = {}
    for change in changes:
        if change.action is Action.ALTER:
            altered.setdefault(change.topic, {})[change.setting] = change.wanted
    for topic, settings in altered.items():
        admin.set_configs(topic, settings)
    return changes
