"""Topics of a tenant made on real brokers, and the second run that finds nothing to do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from waybill.catalog import Action, apply_topics, load_topics, plan_topics, topics_of
from waybill.devstack import Stack
from waybill.infra.clock import SystemClock
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.kernel.errors import ConfigError

pytestmark = pytest.mark.stack


@pytest.fixture
def admin(stack: Stack, fresh_tenant: str) -> Iterator[KafkaAdmin]:
    """The brokers; topics of the test's tenant are deleted afterwards."""
    found = KafkaAdmin(stack.kafka, SystemClock())
    yield found
    names = [name for name in found.topic_names() if name.startswith(f"waybill.{fresh_tenant}.")]
    client = AdminClient({"bootstrap.servers": stack.kafka})
    for future in (client.delete_topics(names) if names else {}).values():
        future.result(30)


def test_every_topic_is_made_as_declared_and_a_second_run_finds_nothing(admin: KafkaAdmin, fresh_tenant: str) -> None:
    made = apply_topics(admin, fresh_tenant, 4)
    again = apply_topics(admin, fresh_tenant, 4)

    declared = topics_of(load_topics())
    facts = admin.topics(topic.topic(fresh_tenant) for topic in declared)
    assert [change.action for change in made] == [Action.CREATE] * len(declared)
    assert again == []
    assert {fact.partitions for fact in facts.values()} == {4}
    state = facts[f"waybill.{fresh_tenant}.state"].configs
    assert set(state["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert (state["segment.ms"], state["max.compaction.lag.ms"]) == ("3600000", "21600000")


def test_what_somebody_changed_is_set_back_only_where_nothing_is_lost(admin: KafkaAdmin, fresh_tenant: str) -> None:
    apply_topics(admin, fresh_tenant, 2)
    commands = f"waybill.{fresh_tenant}.commands"
    admin.set_configs(commands, {"retention.ms": "60000", "max.message.bytes": "1000"})
    outcomes = f"waybill.{fresh_tenant}.outcomes"
    admin.set_configs(outcomes, {"retention.ms": "-1"})

    changes = apply_topics(admin, fresh_tenant, 2)

    assert {(c.topic, c.setting, c.action) for c in changes} == {
        (commands, "retention.ms", Action.ALTER),
        (commands, "max.message.bytes", Action.ALTER),
        (outcomes, "retention.ms", Action.KEPT),
    }
    facts = admin.topics([commands, outcomes])
    assert facts[commands].configs["retention.ms"] == str(30 * 86_400_000)
    assert facts[outcomes].configs["retention.ms"] == "-1"


def test_more_partitions_are_never_given_to_a_live_topic(admin: KafkaAdmin, fresh_tenant: str) -> None:
    apply_topics(admin, fresh_tenant, 2)

    changes = apply_topics(admin, fresh_tenant, 6)

    assert {(change.action, change.setting) for change in changes} == {(Action.KEPT, "partitions")}
    assert {fact.partitions for fact in admin.topics([f"waybill.{fresh_tenant}.commands"]).values()} == {2}


def test_a_plan_makes_nothing(admin: KafkaAdmin, fresh_tenant: str) -> None:
    assert plan_topics(admin, fresh_tenant, 2) != []

    assert [name for name in admin.topic_names() if fresh_tenant in name] == []


@pytest.mark.parametrize(("tenant", "partitions"), [("Acme", 3), ("acme", 0), ("acme", 5000)])
def test_a_tenant_or_count_that_cannot_be_is_refused(admin: KafkaAdmin, tenant: str, partitions: int) -> None:
    with pytest.raises(ConfigError):
        plan_topics(admin, tenant, partitions)


def test_brokers_never_make_a_topic_by_themselves(stack: Stack, admin: KafkaAdmin, fresh_tenant: str) -> None:
    from confluent_kafka import KafkaError, Producer

    name = f"waybill.{fresh_tenant}.typo"
    failed: list[int] = []
    producer = Producer({"bootstrap.servers": stack.kafka, "message.timeout.ms": 2000, "log_level": 0})
    producer.produce(name, b"x", on_delivery=lambda error, _message: failed.append(error.code()))
    producer.flush(10)

    assert failed
    assert failed[0] in {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MSG_TIMED_OUT}
    assert name not in admin.topic_names()


def test_the_command_line_plans_applies_and_reports_in_one_document(
    stack: Stack, admin: KafkaAdmin, fresh_tenant: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    from waybill.cli.topics import app

    arguments = ["--tenant", fresh_tenant, "--kafka", stack.kafka, "--json"]
    runner = CliRunner()
    planned = runner.invoke(app, ["plan", *arguments])
    dry = runner.invoke(app, ["apply", "--dry-run", *arguments])
    applied = runner.invoke(app, ["apply", *arguments])
    again = runner.invoke(app, ["apply", *arguments])
    other_count = runner.invoke(app, ["apply", "--partitions", "9", *arguments])

    assert json.loads(planned.stdout) == json.loads(dry.stdout)
    assert json.loads(applied.stdout)["applied"] is True
    assert json.loads(again.stdout)["in_step"] is True
    assert [r.exit_code for r in (planned, dry, applied, again, other_count)] == [0, 0, 0, 0, 1]
