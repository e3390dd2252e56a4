"""Each trap is refused, by the rule that names it."""

import json
from pathlib import Path
from typing import Any

import pytest

from waybill.contracts.command import HEADERS
from waybill.infra.resources import resource_dir
from waybill.kernel.errors import ConfigError
from waybill.relay import OutboxConnection, OutboxKind, lint_files, render_connector
from waybill.relay.core.lint import lint_connector, lint_text, lint_together
from waybill.relay.core.rules import RULES
from waybill.relay.core.template import ConnectorFile, parse_connector, render

ROUTER = "transforms.outbox."

#: (rule, key that is complained about, settings to change; None takes one away)
TRAPS: list[tuple[str, str, dict[str, str | None]]] = [
    ("connector-class", "connector.class", {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}),
    ("one-task", "tasks.max", {"tasks.max": "4"}),
    # the default is decoderbufs
    ("pgoutput", "plugin.name", {"plugin.name": None}),
    ("own-names", "slot.name", {"slot.name": None}),
    ("own-names", "slot.name", {"slot.name": "Waybill-Orders"}),
    ("own-names", "publication.name", {"publication.name": None}),
    ("publication-made-by-hand", "publication.autocreate.mode", {"publication.autocreate.mode": "filtered"}),
    ("publication-made-by-hand", "publication.autocreate.mode", {"publication.autocreate.mode": None}),
    ("one-table", "table.include.list", {"table.include.list": "waybill.*"}),
    ("one-table", "table.include.list", {"table.include.list": "waybill.outbox,waybill.other"}),
    # publishes every kept row again
    ("no-snapshot", "snapshot.mode", {"snapshot.mode": "initial"}),
    ("no-snapshot", "snapshot.mode", {"snapshot.mode": "when_needed"}),
    ("slot-kept", "slot.drop.on.stop", {"slot.drop.on.stop": "true"}),
    # skips the gap
    ("offset-trusted", "offset.mismatch.strategy", {"offset.mismatch.strategy": "trust_slot"}),
    ("offset-trusted", "offset.mismatch.strategy", {"offset.mismatch.strategy": "trust_greater_lsn"}),
    ("lsn-by-connector", "lsn.flush.mode", {"lsn.flush.mode": "connector_and_driver"}),
    ("no-delete-tombstones", "tombstones.on.delete", {"tombstones.on.delete": "true"}),
    ("publication-decides", "skipped.operations", {"skipped.operations": "none"}),
    ("no-context-headers", "extended.headers.enabled", {"extended.headers.enabled": None}),
    # half a second on every command
    ("polls-often", "poll.interval.ms", {"poll.interval.ms": "500"}),
    ("queue-bounded", "max.queue.size.in.bytes", {"max.queue.size.in.bytes": None}),
    ("queue-bounded", "max.queue.size.in.bytes", {"max.queue.size.in.bytes": "0"}),
    ("queue-bounded", "max.queue.size", {"max.queue.size": "8192"}),
    ("retries-for-ever", "errors.max.retries", {"errors.max.retries": "10"}),
    (
        "failure-stops",
        "event.processing.failure.handling.mode",
        {"event.processing.failure.handling.mode": "skip"},
    ),
    # drops what cannot be produced
    ("errors-stop", "errors.tolerance", {"errors.tolerance": "all"}),
    ("router", "transforms", {"transforms": "dropMessages"}),
    ("router-guarded", f"{ROUTER}predicate", {f"{ROUTER}predicate": None}),
    ("router-guarded", "predicates.isOutbox.pattern", {"predicates.isOutbox.pattern": ".*outbox"}),
    ("router-fields", f"{ROUTER}table.field.event.key", {f"{ROUTER}table.field.event.key": None}),
    ("router-fields", f"{ROUTER}route.topic.replacement", {f"{ROUTER}route.topic.replacement": "waybill.commands"}),
    # a row it does not match goes to a topic of its raw route
    ("route-not-filtered", f"{ROUTER}route.topic.regex", {f"{ROUTER}route.topic.regex": "(.*)[.]commands"}),
    (
        "headers-only",
        f"{ROUTER}table.fields.additional.placement",
        {f"{ROUTER}table.fields.additional.placement": "tenant:header:ce_tenant, source:header:ce_source"},
    ),
    (
        "headers-only",
        f"{ROUTER}table.fields.additional.placement",
        {f"{ROUTER}table.fields.additional.placement": "tenant:envelope:tenant"},
    ),
    # wins over the key
    (
        "headers-only",
        f"{ROUTER}table.fields.additional.placement",
        {f"{ROUTER}table.fields.additional.placement": "number:partition:x"},
    ),
    (
        "headers-only",
        f"{ROUTER}table.fields.additional.placement",
        {f"{ROUTER}table.fields.additional.placement": "command_id:header:id"},
    ),
    (
        "missing-column-fails",
        f"{ROUTER}table.fields.additional.error.on.missing",
        {f"{ROUTER}table.fields.additional.error.on.missing": "false"},
    ),
    (
        "no-event-timestamp",
        f"{ROUTER}table.field.event.timestamp",
        {f"{ROUTER}table.field.event.timestamp": "issued_at"},
    ),
    ("update-is-fatal", f"{ROUTER}table.op.invalid.behavior", {f"{ROUTER}table.op.invalid.behavior": None}),
    ("payload-untouched", f"{ROUTER}table.expand.json.payload", {f"{ROUTER}table.expand.json.payload": "true"}),
    ("key-is-text", "key.converter", {"key.converter": "org.apache.kafka.connect.json.JsonConverter"}),
    # fails on the first heartbeat
    (
        "value-is-bytes",
        "value.converter",
        {"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"},
    ),
    ("value-is-bytes", "value.converter.delegate.converter.type", {"value.converter.delegate.converter.type": None}),
    ("header-is-text", "header.converter", {"header.converter": "org.apache.kafka.connect.json.JsonConverter"}),
    ("binary-is-bytes", "binary.handling.mode", {"binary.handling.mode": "base64"}),
    ("heartbeat", "heartbeat.interval.ms", {"heartbeat.interval.ms": "0"}),
    ("heartbeat", "heartbeat.interval.ms", {"heartbeat.interval.ms": None}),
    ("heartbeat-message", "heartbeat.action.query", {"heartbeat.action.query": None}),
    ("heartbeat-message", "message.prefix.include.list", {"message.prefix.include.list": "other"}),
    ("messages-filtered", "transforms", {"transforms": "outbox", "transforms.dropMessages.type": None}),
    ("messages-filtered", "predicates.isMessage.pattern", {"predicates.isMessage.pattern": "x"}),
    (
        "creation-defaults",
        "topic.creation.default.partitions",
        {"topic.creation.default.partitions": None},
    ),
    ("no-default-group", "topic.creation.groups", {"topic.creation.groups": "default,heartbeat"}),
    ("transactional", "exactly.once.support", {"exactly.once.support": "requested"}),
    ("transactional", "transaction.boundary", {"transaction.boundary": "interval"}),
    ("no-secret", "database.password", {"database.password": "hunter2"}),
    ("no-secret", "database.password", {"database.password": None}),
    ("no-secret", "database.sslpassword", {"database.sslpassword": "hunter2"}),
    ("log-masking-kept", "custom.sanitize.pattern", {"custom.sanitize.pattern": "x"}),
    ("tls-said", "database.sslmode", {"database.sslmode": None}),
    ("worker-settings", "producer.override.linger.ms", {"producer.override.linger.ms": "5"}),
]


def outbox(**changed: Any) -> OutboxConnection:
    given: dict[str, Any] = {
        "name": "acme-orders",
        "host": "db.example",
        "port": 5432,
        "database": "orders",
        "user": "waybill_relay",
        "secret_file": "/run/secrets/connect.properties",
        "secret_key": "acme-orders.password",
    }
    return OutboxConnection(**{**given, **changed})


def shipped(kind: str) -> str:
    return (resource_dir("connect") / f"{kind}.json").read_text()


@pytest.mark.parametrize("kind", ["outbox", "control"])
@pytest.mark.parametrize(("rule", "key", "change"), TRAPS, ids=[f"{rule}:{key}" for rule, key, _ in TRAPS])
def test_a_trap_is_refused_in_both_files(kind: str, rule: str, key: str, change: dict[str, str | None]) -> None:
    settings = {**json.loads(shipped(kind)), **change}
    settings = {name: value for name, value in settings.items() if value is not None}

    faults = lint_text(json.dumps(settings, indent=1), f"connect/{kind}.json")

    assert (rule, key) in {(fault.rule, fault.key) for fault in faults}


def test_every_rule_has_a_trap_that_shows_it() -> None:
    assert {rule.id for rule in RULES} == {rule for rule, _, _ in TRAPS}


def test_a_fault_names_file_line_expectation_and_reason() -> None:
    text = shipped("outbox").replace('"snapshot.mode": "no_data"', '"snapshot.mode": "initial"')
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "snapshot.mode" in row)

    (fault,) = lint_text(text, "connect/outbox.json")

    assert str(fault) == (
        f"connect/outbox.json:{line}: snapshot.mode: expected no_data "
        "[no-snapshot: any other mode publishes every kept row again]"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "b",\n  broken', "connect/x.json:2: not JSON: expected"),
        ('["a"]', "connect/x.json:1: file: expected a JSON object of connector settings"),
        ('{\n  "tasks.max": 1\n}', "connect/x.json:2: tasks.max: expected text in quotes"),
        ('{\n  "tasks.max": "1",\n  "tasks.max": "1"\n}', "connect/x.json:3: tasks.max: expected each setting once"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(text: str, message: str) -> None:
    faults = lint_text(text, "connect/x.json")

    assert faults[0].rule == "readable"
    assert message in str(faults[0])


def test_two_connectors_never_share_a_slot_or_a_prefix() -> None:
    first = render_connector(outbox())
    files = [
        ConnectorFile(file=f"{name}.json", settings={**first, "topic.prefix": name}, lines={}) for name in ("a", "b")
    ]

    assert [(fault.file, fault.key) for fault in lint_together(files)] == [("b.json", "slot.name")]


def test_shipped_files_have_no_fault_and_no_secret() -> None:
    assert lint_files(sorted(resource_dir("connect").glob("*.json"))) == []


@pytest.mark.parametrize("kind", list(OutboxKind))
def test_a_rendered_connector_has_no_placeholder_left_and_no_fault(kind: OutboxKind) -> None:
    settings = render_connector(outbox(kind=kind))

    assert not any("{{" in value for value in settings.values())
    assert lint_connector(ConnectorFile(file="x", settings=settings, lines={})) == []
    assert settings["database.password"] == "${file:/run/secrets/connect.properties:acme-orders.password}"
    assert settings["slot.name"] == "waybill_acme_orders"
    assert "database.sslrootcert" not in settings


def test_the_placement_list_is_the_contract() -> None:
    places = render_connector(outbox())[f"{ROUTER}table.fields.additional.placement"]

    assert places == ",".join(f"{field.column}:header:{field.header}" for field in HEADERS)


def test_an_optional_setting_appears_when_given() -> None:
    settings = render_connector(outbox(sslmode="verify-full", sslrootcert="/etc/ca.pem"))

    assert (settings["database.sslmode"], settings["database.sslrootcert"]) == ("verify-full", "/etc/ca.pem")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "Acme"}, "outbox name 'Acme'"),
        ({"name": "a" * 51}, "outbox name"),
        ({"schema": "Way Bill"}, "schema 'Way Bill'"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        outbox(**changed)


def test_a_value_connect_would_resolve_is_refused() -> None:
    with pytest.raises(ConfigError, match="value of host: expected plain text"):
        render_connector(outbox(host="${file:/etc/passwd:root}"))


def test_an_unknown_placeholder_names_its_line() -> None:
    file = parse_connector('{\n  "a": "{{nobody}}"\n}', "connect/x.json")

    with pytest.raises(ConfigError, match=r"connect/x.json:2: a: \{\{nobody\}\} is unknown"):
        render(file, {"name": "x"})


def test_a_file_that_is_not_there_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing.json: cannot be read"):
        lint_files([tmp_path / "missing.json"])
