"""The plan: what is made, what is changed, what is kept and why."""

import pytest

from waybill.catalog.core.declaration import TopicDeclaration, parse_topic
from waybill.catalog.core.plan import Action, LiveTopic, broker_settings, plan, replication_for

TEMPLATE = """\
description: A topic of a test.
owner: fabric
producers: [a]
consumers: [b]
key: aggregate
value: words
ordering_key: aggregate
partitions: tenant
replication: cluster
cleanup: [delete]
retention: [30d]
max_message: 1MiB
"""


def declared(name: str = "commands", **replaced: str) -> TopicDeclaration:
    text = TEMPLATE
    for field, value in replaced.items():
        text = "\n".join(f"{field}: {value}" if line.startswith(f"{field}:") else line for line in text.splitlines())
    return parse_topic(text, f"topics/{name}.yaml")


def live(declaration: TopicDeclaration, partitions: int = 6, replication: int = 1, **changed: str) -> LiveTopic:
    configs = broker_settings(declaration, 1) | {key.replace("_", "."): value for key, value in changed.items()}
    return LiveTopic(partitions=partitions, replication=replication, configs=configs)


def test_a_new_tenant_gets_every_topic_with_the_asked_count() -> None:
    changes = plan([declared(), declared("state")], "acme", partitions=3, brokers=1, live={})

    assert [(c.topic, c.action, c.partitions, c.replication) for c in changes] == [
        ("waybill.acme.commands", Action.CREATE, 3, 1),
        ("waybill.acme.state", Action.CREATE, 3, 1),
    ]


def test_topics_in_step_need_nothing() -> None:
    topic = declared()

    assert plan([topic], "acme", partitions=6, brokers=1, live={"waybill.acme.commands": live(topic)}) == []


@pytest.mark.parametrize("asked", [None, 6, 12])
def test_a_new_topic_of_a_living_tenant_gets_the_count_the_tenant_has(asked: int | None) -> None:
    topic, added = declared(), declared("outcomes")

    changes = plan(
        [topic, added], "acme", partitions=asked, brokers=1, live={"waybill.acme.commands": live(topic, partitions=4)}
    )

    assert [c.partitions for c in changes if c.action is Action.CREATE] == [4]


@pytest.mark.parametrize(
    ("changed", "partitions", "action", "setting", "reason"),
    [
        # a count that differs stays, upwards
        ({}, 12, Action.KEPT, "partitions", "never raised"),
        # and downwards
        ({}, 3, Action.KEPT, "partitions", "cannot be taken away"),
        # a longer retention is applied
        ({"retention_ms": "1000"}, 6, Action.ALTER, "retention.ms", ""),
        # a shorter one would delete records
        ({"retention_ms": "99999999999"}, 6, Action.KEPT, "retention.ms", "deletes records"),
        # "for ever" is the longest
        ({"retention_ms": "-1"}, 6, Action.KEPT, "retention.ms", "deletes records"),
        ({"retention_bytes": "5000"}, 6, Action.ALTER, "retention.bytes", ""),
        ({"cleanup_policy": "compact"}, 6, Action.KEPT, "cleanup.policy", "removes records"),
        ({"max_message_bytes": "5"}, 6, Action.ALTER, "max.message.bytes", ""),
        ({"min_insync_replicas": "2"}, 6, Action.KEPT, "min.insync.replicas", "easier to lose"),
    ],
)
def test_a_difference_is_altered_only_where_nothing_is_lost(
    changed: dict[str, str], partitions: int, action: Action, setting: str, reason: str
) -> None:
    topic = declared()

    changes = plan(
        [topic], "acme", partitions=partitions, brokers=1, live={"waybill.acme.commands": live(topic, **changed)}
    )

    assert [(c.action, c.setting) for c in changes] == [(action, setting)]
    assert reason in changes[0].reason


def test_cleanup_policies_are_compared_as_sets() -> None:
    topic = declared(cleanup="[delete, compact]")
    there = live(topic, cleanup_policy="delete,compact")

    assert plan([topic], "acme", partitions=6, brokers=1, live={"waybill.acme.commands": there}) == []


@pytest.mark.parametrize(
    ("wanted", "brokers", "expected"),
    [(None, 1, (1, 1)), (None, 2, (1, 1)), (None, 3, (3, 2)), (None, 5, (3, 2)), (2, 5, (2, 1)), (1, 3, (1, 1))],
)
def test_copies_follow_the_cluster(wanted: int | None, brokers: int, expected: tuple[int, int]) -> None:
    assert replication_for(wanted, brokers) == expected


def test_other_copies_than_declared_are_reported_not_moved() -> None:
    topic = declared()
    there = live(topic, replication=1, min_insync_replicas="2")

    changes = plan([topic], "acme", partitions=6, brokers=3, live={"waybill.acme.commands": there})

    assert [(c.action, c.setting, c.actual, c.wanted) for c in changes] == [(Action.KEPT, "replication", "1", "3")]
