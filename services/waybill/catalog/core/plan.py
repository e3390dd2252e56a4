"""The comparison of declared topics with those the brokers hold. No I/O: facts in, changes out.

The order of the rules is the promise: a live topic keeps its partitions, what it holds and how it is cleaned; only
what loses nothing is changed. A difference that stays is a `kept` change with its reason, so that nobody mistakes
it for agreement.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from waybill.catalog.core.declaration import TopicDeclaration

__all__ = ["Action", "LiveTopic", "TopicChange", "broker_settings", "plan", "replication_for"]

#: A broker's word for "no bound".
_UNBOUNDED: Final = -1


class Action(StrEnum):
    """What a plan does about one difference."""

    #: The topic is made.
    CREATE = "create"
    #: A setting is changed; nothing is lost by it.
    ALTER = "alter"
    #: The difference stays: removing it could lose or reorder records.
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    """A topic as the brokers hold it."""

    partitions: int
    replication: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One difference between a declaration and the brokers."""

    topic: str
    action: Action
    #: The Kafka name of the setting, or `topic`, `partitions`, `replication`.
    setting: str
    actual: str | None
    wanted: str
    #: Why it is kept; empty otherwise.
    reason: str = ""
    #: Of a `create`: the count, the copies and every setting.
    partitions: int = 0
    replication: int = 0
    configs: Mapping[str, str] | None = None


def replication_for(declared: int | None, brokers: int) -> tuple[int, int]:
    """Return copies and how many must be in sync: 3 and 2 where there are three brokers, else one of each."""
    copies = declared or (3 if brokers >= 3 else 1)
    return copies, max(1, copies - 1)


def broker_settings(declaration: TopicDeclaration, in_sync: int) -> dict[str, str]:
    """Return every setting a topic is made with."""
    return {
        "cleanup.policy": ",".join(sorted(declaration.cleanup)),
        "retention.ms": str(declaration.retention_ms or _UNBOUNDED),
        "retention.bytes": str(declaration.retention_bytes or _UNBOUNDED),
        "max.message.bytes": str(declaration.max_message_bytes),
        "min.insync.replicas": str(in_sync),
        **declaration.settings,
    }


def plan(
    declared: Sequence[TopicDeclaration],
    tenant: str,
    *,
    partitions: int | None,
    brokers: int,
    live: Mapping[str, LiveTopic],
    default_partitions: int = 6,
) -> list[TopicChange]:
    """Compare what is declared for a tenant with what lives.

    Args:
        declared: every topic file.
        tenant: whose topics.
        partitions: the asked count; None takes the tenant's own, or the default for a new tenant.
        brokers: how many the cluster has.
        live: existing topics by full name; others than the declared are ignored.
        default_partitions: of a tenant without topics.

    Returns:
        Changes by topic, in the order of the declarations; empty when all is in step.
    """
    count = tenant_partitions(declared, tenant, live) or partitions or default_partitions
    changes: list[TopicChange] = []
    for declaration in declared:
        topic = declaration.topic(tenant)
        copies, in_sync = replication_for(declaration.replication, brokers)
        settings = broker_settings(declaration, in_sync)
        if topic not in live:
            text = f"{count} partitions, {copies} copies, {settings['cleanup.policy']}"
            changes.append(
                TopicChange(
                    topic=topic,
                    action=Action.CREATE,
                    setting="topic",
                    actual=None,
                    wanted=text,
                    partitions=count,
                    replication=copies,
                    configs=settings,
                )
            )
            continue
        changes.extend(_counts(topic, live[topic], partitions or count, copies))
        changes.extend(_settings(topic, live[topic], settings))
    return changes


def tenant_partitions(declared: Iterable[TopicDeclaration], tenant: str, live: Mapping[str, LiveTopic]) -> int | None:
    """Return the count the tenant's topics already have; that of `commands` where they disagree."""
    counts = {d.name: live[d.topic(tenant)].partitions for d in declared if d.topic(tenant) in live}
    return counts.get("commands") or next(iter(counts.values()), None)


def _counts(topic: str, live: LiveTopic, partitions: int, copies: int) -> Iterable[TopicChange]:
    if live.partitions != partitions:
        reason = (
            "partitions of a live keyed topic are never raised: its aggregates would move and lose their order; "
            "a tenant that outgrows its count gets a new one"
            if live.partitions < partitions
            else "partitions cannot be taken away"
        )
        yield TopicChange(
            topic=topic,
            action=Action.KEPT,
            setting="partitions",
            actual=str(live.partitions),
            wanted=str(partitions),
            reason=reason,
        )
    if live.replication != copies:
        yield TopicChange(
            topic=topic,
            action=Action.KEPT,
            setting="replication",
            actual=str(live.replication),
            wanted=str(copies),
            reason="moving copies is a reassignment: plan it with kafka-reassign-partitions",
        )


def _settings(topic: str, live: LiveTopic, settings: Mapping[str, str]) -> Iterable[TopicChange]:
    for setting, wanted in settings.items():
        actual = live.configs.get(setting)
        if setting == "cleanup.policy" and actual is not None:
            actual = ",".join(sorted(actual.split(",")))
        if actual == wanted:
            continue
        reason = _why_kept(setting, actual, wanted)
        action = Action.KEPT if reason else Action.ALTER
        yield TopicChange(topic=topic, action=action, setting=setting, actual=actual, wanted=wanted, reason=reason)


def _why_kept(setting: str, actual: str | None, wanted: str) -> str:
    """Return why a setting of a live topic is left alone, or nothing when changing it loses nothing."""
    if setting == "cleanup.policy":
        return "another cleanup removes records that are kept now: change it by hand when that is meant"
    if setting in {"retention.ms", "retention.bytes"} and actual is not None:
        now, then = int(actual), int(wanted)
        if then != _UNBOUNDED and (now == _UNBOUNDED or then < now):
            return "a shorter retention deletes records that are kept now: change it by hand when that is meant"
    if setting == "min.insync.replicas" and actual is not None and int(wanted) < int(actual):
        return "fewer copies in sync make acknowledged records easier to lose: change it by hand when that is meant"
    return ""
