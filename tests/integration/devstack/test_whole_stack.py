"""The whole stack: every service does its work, keeps what it was given, and can be lent to another project."""

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # the package re-exports them without saying so
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from typer.testing import CliRunner

from waybill.cli.dev import app
from waybill.devstack import Stack, Wanted, down, launcher, put_secret, reset, status, up
from waybill.devstack.plan import service_names
from waybill.devstack.processes import find
from waybill.infra.addresses import Addresses
from waybill.kernel.errors import UnavailableError

pytestmark = pytest.mark.stack


def call(url: str, body: object = None) -> object:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    headers = {"content-type": "application/json"}
    method = "GET" if body is None else "POST"
    connection.request(method, parts.path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status == 200, text
    return json.loads(text)


def make_topic(stack: Stack, name: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=replicas)])[name].result(30)


def produce(stack: Stack, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def first_record(stack: Stack, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": stack.kafka, "group.id": "devstack", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        return message.value() if message is not None and message.error() is None else None
    finally:
        consumer.close()


def topics(stack: Stack) -> set[str]:
    return set(AdminClient({"bootstrap.servers": stack.kafka}).list_topics(timeout=30).topics)


def setting(stack: Stack, kind: ResourceType, name: str, key: str) -> str:
    resource = ConfigResource(kind, name)
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    described = admin.describe_configs([resource])[resource].result(30)
    return str(described[key].value)


def test_every_service_says_it_is_up(stack: Stack) -> None:
    rows = status(stack.name)

    assert [(row["service"], row["state"]) for row in rows] == [
        ("postgres", "up"),
        ("kafka-1", "up"),
        ("connect", "up"),
        ("registry", "up"),
    ]
    assert set(find(stack.folder, service_names(1))) == set(service_names(1))


def test_connect_offers_debezium_and_runs_sources_exactly_once(stack: Stack) -> None:
    plugins = call(f"{stack.connect_url}/connector-plugins")

    assert {
        "class": "io.debezium.connector.postgresql.PostgresConnector",
        "type": "source",
        "version": "3.7.0.Final",
    } in (plugins if isinstance(plugins, list) else [])
    log = (stack.folder / "logs" / "connect.log").read_text()
    assert "exactly.once.source.support = enabled" in log
    assert "connector.client.config.override.policy = None" in log


def test_the_broker_fences_quickly_and_makes_no_topic_by_accident(stack: Stack) -> None:
    wanted = {
        "auto.create.topics.enable": "false",
        "group.consumer.min.session.timeout.ms": "6000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }

    assert {key: setting(stack, ResourceType.BROKER, "1", key) for key in wanted} == wanted


def test_addresses_come_from_the_state_file(stack: Stack) -> None:
    addresses = Addresses.load({"WAYBILL_STACK": stack.name}, Path.cwd())

    assert addresses.kafka == stack.kafka
    assert addresses.registry_url == stack.registry_url
    assert addresses.control_dsn == stack.dsn("waybill")
    assert addresses.worker_dsn == stack.dsn("waybill", "waybill_worker"), "a worker gets no more than it needs"


def test_down_and_up_keep_topics_and_schema_ids(other_stack: Stack) -> None:
    make_topic(other_stack, "kept")
    produce(other_stack, "kept", b"before")
    subject = f"{other_stack.registry_url}/subjects/kept-value/versions"
    schema = {"schema": json.dumps({"type": "record", "name": "Kept", "fields": []})}
    registered = call(subject, schema)

    assert set(down(other_stack.name)) == {"postgres", "kafka-1", "registry"}
    assert find(other_stack.folder, service_names(1)) == {}
    up(Wanted(name=other_stack.name, services=("postgres", "kafka-1", "registry")), print)

    assert first_record(other_stack, "kept") == b"before"
    assert call(subject, schema) == registered


def test_two_whole_stacks_share_nothing(stack: Stack, other_stack: Stack) -> None:
    make_topic(other_stack, "elsewhere")

    assert "elsewhere" in topics(other_stack)
    assert "elsewhere" not in topics(stack)
    assert not set(stack.ports.values()) & set(other_stack.ports.values())


def test_three_brokers_keep_three_copies_and_need_two(own_name: str) -> None:
    brokers = ("kafka-1", "kafka-2", "kafka-3")
    cluster = up(Wanted(name=own_name, brokers=3, services=brokers), print)

    make_topic(cluster, "copied", replicas=3)
    find(cluster.folder, brokers)["kafka-2"].kill()
    produce(cluster, "copied", b"two of three")

    assert setting(cluster, ResourceType.TOPIC, "copied", "min.insync.replicas") == "2"
    assert up(Wanted(name=own_name, services=brokers), print) == cluster
    assert set(find(cluster.folder, brokers)) == set(brokers)


def test_an_external_stack_is_checked_remembered_and_never_ended(stack: Stack, own_name: str, tmp_path: Path) -> None:
    secrets = tmp_path / "passwords"
    secrets.write_text("".join(f"{role}={password}\n" for role, password in stack.passwords.items()))
    given = {
        "kafka": stack.kafka,
        "connect_url": stack.connect_url,
        "registry_url": stack.registry_url,
        "postgres": f"{stack.postgres_host}:{stack.postgres_port}",
        "secrets": str(secrets),
    }

    external = up(Wanted(name=own_name, backend="external", addresses=given), print)

    assert external.dsn("app", "waybill_app") == stack.dsn("app", "waybill_app")
    assert {row["state"] for row in status(own_name)} == {"up"}
    assert down(own_name) == []
    reset(own_name)
    assert {row["state"] for row in status(stack.name)} == {"up"}


def test_an_external_stack_that_does_not_answer_is_named_service_by_service(own_name: str, tmp_path: Path) -> None:
    secrets = tmp_path / "passwords"
    secrets.write_text("postgres=a\nwaybill_app=b\nwaybill_relay=c\nwaybill_worker=d\n")
    nowhere = {
        "kafka": "127.0.0.1:9",
        "connect_url": "http://127.0.0.1:9",
        "registry_url": "http://127.0.0.1:9",
        "postgres": "127.0.0.1:9",
        "secrets": str(secrets),
    }

    with pytest.raises(UnavailableError) as refusal:
        up(Wanted(name=own_name, backend="external", addresses=nowhere), print)

    for what in (
        "PostgreSQL refuses",
        "Kafka does not answer",
        "Connect does not answer",
        "the registry does not answer",
    ):
        assert what in str(refusal.value)


def test_a_secret_can_be_added_and_replaced_without_losing_others(stack: Stack) -> None:
    before = stack.secrets_file.read_text()
    try:
        put_secret(stack, "acme.password", "one")
        put_secret(stack, "acme.password", "tw=o")

        assert stack.secrets_file.read_text() == f"{before}acme.password=tw=o\n"
    finally:
        put_secret(stack, "acme.password", "-")


def test_each_command_prints_one_document(stack: Stack) -> None:
    runner = CliRunner()

    documents = {
        command: json.loads(runner.invoke(app, [command, "--name", stack.name, "--json"]).stdout)
        for command in ("up", "status", "env", "logs")
    }

    assert documents["up"]["kafka"] == stack.kafka
    assert "password" not in json.dumps(documents["up"])
    assert len(documents["status"]) == 4
    assert documents["env"] == launcher.variables(stack)
    assert set(documents["logs"]) == set(service_names(1))


def test_env_lines_can_be_evaluated_by_a_shell(stack: Stack) -> None:
    printed = CliRunner().invoke(app, ["env", "--name", stack.name]).stdout.splitlines()

    assert f"export WAYBILL_KAFKA='{stack.kafka}'" in printed
    assert f"export WAYBILL_APP_DSN='{stack.dsn('app', 'waybill_app')}'" in printed
    assert all(line.startswith("export WAYBILL_") for line in printed)
