"""The traps of a Debezium outbox connector, one rule each.

A rule looks at the settings and yields what it expected instead, key by key. Every reason is a fault that was seen:
lost rows, repeated rows, a pipe that stands still while it says RUNNING, a secret where everybody reads it. Settings
may still hold placeholders; a rule about a number leaves those alone.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["RULES", "Rule"]

Settings = Mapping[str, str]
#: (key, what was expected of it)
Complaint = tuple[str, str]

_ROUTER: Final = "io.debezium.transforms.outbox.EventRouter"
_FILTER: Final = "org.apache.kafka.connect.transforms.Filter"
_NAME_MATCHES: Final = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
_SECRET_KEY: Final = re.compile(r"password|secret|token|jaas|credential|private", re.IGNORECASE)
_REFERENCE: Final = re.compile(r"^\$\{[a-z][a-zA-Z0-9_]*:(?:\{\{[a-z_]+\}\}|[^{}])+\}$")
_EMIT: Final = re.compile(r"pg_logical_emit_message\(\s*(?:true|false)\s*,\s*'([^']+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One trap."""

    id: str
    why: str
    check: Callable[[Settings], Iterable[Complaint]]


def _is(key: str, *wanted: str) -> Callable[[Settings], Iterable[Complaint]]:
    """Expect exactly one of some values; absent is wrong."""

    def check(settings: Settings) -> Iterable[Complaint]:
        if settings.get(key) not in wanted:
            yield key, " or ".join(wanted)

    return check


def _absent_or(key: str, *allowed: str) -> Callable[[Settings], Iterable[Complaint]]:
    """Expect the default, spelt out or left out."""

    def check(settings: Settings) -> Iterable[Complaint]:
        if key in settings and settings[key] not in allowed:
            yield key, f"{' or '.join(allowed)}, or to be left out" if allowed else "to be left out"

    return check


def _given(*keys: str) -> Callable[[Settings], Iterable[Complaint]]:
    def check(settings: Settings) -> Iterable[Complaint]:
        for key in keys:
            if not settings.get(key):
                yield key, "a value"

    return check


def _between(key: str, low: int, high: int) -> Callable[[Settings], Iterable[Complaint]]:
    def check(settings: Settings) -> Iterable[Complaint]:
        value = settings.get(key, "")
        if "{{" not in value and not (value.isdigit() and low <= int(value) <= high):
            yield key, f"a number from {low} to {high}"

    return check


def _all(*checks: Callable[[Settings], Iterable[Complaint]]) -> Callable[[Settings], Iterable[Complaint]]:
    def check(settings: Settings) -> Iterable[Complaint]:
        for one in checks:
            yield from one(settings)

    return check


def _router(settings: Settings) -> str | None:
    """Return the key prefix of the router transform."""
    return next((key.removesuffix("type") for key, value in settings.items() if value == _ROUTER), None)


def _of_router(
    check: Callable[[Settings, str], Iterable[Complaint]],
) -> Callable[[Settings], Iterable[Complaint]]:
    def routed(settings: Settings) -> Iterable[Complaint]:
        prefix = _router(settings)
        return check(settings, prefix) if prefix else ()

    return routed


def _has_router(settings: Settings) -> Iterable[Complaint]:
    prefix = _router(settings)
    if prefix is None or prefix.split(".")[1] not in settings.get("transforms", "").split(","):
        yield "transforms", f"a transform of type {_ROUTER}"


def _guarded(settings: Settings, prefix: str) -> Iterable[Complaint]:
    topic = f"{settings.get('topic.prefix', '')}.{settings.get('table.include.list', '')}"
    yield from _named_predicate(settings, f"{prefix}predicate", topic)


def _named_predicate(settings: Settings, key: str, topic: str) -> Iterable[Complaint]:
    """Expect a transform to be guarded by a predicate that matches one topic and nothing else."""
    name = settings.get(key, "")
    if not name or name not in settings.get("predicates", "").split(","):
        yield key, "a predicate listed in predicates"
        return
    if settings.get(f"predicates.{name}.type") != _NAME_MATCHES:
        yield f"predicates.{name}.type", _NAME_MATCHES
    pattern = topic.replace(".", r"\.")
    if settings.get(f"predicates.{name}.pattern") != pattern:
        yield f"predicates.{name}.pattern", pattern


def _fields(settings: Settings, prefix: str) -> Iterable[Complaint]:
    for field in ("table.field.event.id", "table.field.event.key", "table.field.event.payload", "route.by.field"):
        if not settings.get(prefix + field):
            yield prefix + field, "a NOT NULL column of the outbox"
    replacement = settings.get(f"{prefix}route.topic.replacement", "")
    if not replacement.endswith("${routedByValue}") or replacement == "${routedByValue}":
        yield f"{prefix}route.topic.replacement", "a fixed beginning and ${routedByValue}"


def _placement(settings: Settings, prefix: str) -> Iterable[Complaint]:
    key = f"{prefix}table.fields.additional.placement"
    if key not in settings:
        return
    text = settings[key]
    headers: list[str] = []
    for place in text.split(","):
        parts = place.split(":")
        if len(parts) != 3 or parts[1] != "header" or not all(parts) or re.search(r"\s", place):
            yield key, f"column:header:name parts joined by commas without spaces, not {place!r}"
            return
        headers.append(parts[2])
    if "id" in headers or len(set(headers)) != len(headers):
        yield key, "each header once, and none named id: the router adds that one"


def _not_in_router(name: str, *allowed: str) -> Callable[[Settings], Iterable[Complaint]]:
    return _of_router(lambda settings, prefix: _absent_or(prefix + name, *allowed)(settings))


def _one_table(settings: Settings) -> Iterable[Complaint]:
    if not re.fullmatch(r"[a-z0-9_{}]+\.[a-z0-9_]+", settings.get("table.include.list", "")):
        yield "table.include.list", "exactly the outbox root, as schema.table"


def _queue(settings: Settings) -> Iterable[Complaint]:
    batch, queue = settings.get("max.batch.size", "2048"), settings.get("max.queue.size", "8192")
    if batch.isdigit() and queue.isdigit() and int(queue) <= int(batch):
        yield "max.queue.size", f"more than max.batch.size ({batch})"
    if not settings.get("max.queue.size.in.bytes", "").strip("0").isdigit():
        yield "max.queue.size.in.bytes", "a number above zero: by default the queue is unlimited"


def _heartbeat_message(settings: Settings) -> Iterable[Complaint]:
    found = _EMIT.search(settings.get("heartbeat.action.query", ""))
    if found is None:
        yield "heartbeat.action.query", "a call of pg_logical_emit_message with a prefix of its own"
        return
    if settings.get("message.prefix.include.list") != found[1]:
        yield "message.prefix.include.list", found[1]


def _messages_filtered(settings: Settings) -> Iterable[Complaint]:
    names = settings.get("transforms", "").split(",")
    filters = [name for name in names if settings.get(f"transforms.{name}.type") == _FILTER]
    if not filters:
        yield "transforms", f"a transform of type {_FILTER} for the heartbeat's messages"
        return
    topic = f"{settings.get('topic.prefix', '')}.message"
    yield from _named_predicate(settings, f"transforms.{filters[0]}.predicate", topic)


def _secrets(settings: Settings) -> Iterable[Complaint]:
    for key, value in settings.items():
        if _SECRET_KEY.search(key) and not _REFERENCE.match(value):
            yield key, "a reference such as ${file:/path:key}, never the secret"
    if "database.password" not in settings:
        yield "database.password", "a reference such as ${file:/path:key}"


def _worker_settings(settings: Settings) -> Iterable[Complaint]:
    for key in settings:
        if key.startswith(("producer.override.", "consumer.override.", "admin.override.")):
            yield key, "to stand in the worker's configuration: its override policy is None"


def _default_group(settings: Settings) -> Iterable[Complaint]:
    if "default" in settings.get("topic.creation.groups", "").split(","):
        yield "topic.creation.groups", "groups other than `default`: naming it fails the connector"


def _names(settings: Settings) -> Iterable[Complaint]:
    if not re.fullmatch(r"[a-z0-9_{}]{1,63}", settings.get("slot.name", "")):
        yield "slot.name", "a slot of this connector alone: lower case, digits, _"
    if not settings.get("publication.name"):
        yield "publication.name", "the publication the outbox's migration made"
    if not settings.get("topic.prefix"):
        yield "topic.prefix", "a prefix of this connector alone"


_DEFAULTS_KEPT: Final = ("event.processing.failure.handling.mode", "fail")

RULES: Final[tuple[Rule, ...]] = tuple(
    Rule(id=rule_id, why=why, check=check)
    for rule_id, why, check in (
        ("connector-class", "another connector reads another log", _is("connector.class", "io.debezium.connector.postgresql.PostgresConnector")),
        ("one-task", "the connector is single-task; one pipe is what keeps order", _is("tasks.max", "1")),
        ("pgoutput", "the default plug-in is decoderbufs, which no server has", _is("plugin.name", "pgoutput")),
        ("own-names", "two connectors on one slot lose rows without a word", _names),
        ("publication-made-by-hand", "autocreate alters the publication at every start and wants ownership", _is("publication.autocreate.mode", "disabled")),
        ("one-table", "any other table meets the router and stops the pipe", _one_table),
        ("no-snapshot", "any other mode publishes every kept row again", _is("snapshot.mode", "no_data")),
        ("slot-kept", "a slot dropped on stop is a hole", _absent_or("slot.drop.on.stop", "false")),
        ("offset-trusted", "trusting the slot skips the gap instead of failing", _absent_or("offset.mismatch.strategy", "no_validation", "trust_offset")),
        ("lsn-by-connector", "the driver can move the slot past the stored offset", _absent_or("lsn.flush.mode", "connector")),
        ("no-delete-tombstones", "a deleted row says nothing about a command", _is("tombstones.on.delete", "false")),
        ("publication-decides", "skipping operations here hides what the publication lets through", _absent_or("skipped.operations")),
        ("no-context-headers", "three foreign headers would ride on every record", _is("extended.headers.enabled", "false")),
        ("polls-often", "the default of 500 ms is half a second on every command", _between("poll.interval.ms", 1, 100)),
        ("queue-bounded", "an unbounded queue of large rows ends the worker", _queue),
        ("retries-for-ever", "giving up after some retries stops the pipe at night", _absent_or("errors.max.retries", "-1")),
        ("failure-stops", "warn and skip lose commands", _absent_or(*_DEFAULTS_KEPT)),
        ("errors-stop", "tolerance `all` drops what cannot be produced; a source has no dead letter queue", _is("errors.tolerance", "none")),
        ("router", "without the router rows arrive as change events", _has_router),
        ("router-guarded", "heartbeats and messages meet an unguarded router", _of_router(_guarded)),
        ("router-fields", "without a key order is lost, without an id nobody can deduplicate", _of_router(_fields)),
        ("route-not-filtered", "a regex that does not match sends the row to a topic named by the raw value", _not_in_router("route.topic.regex", "(?<routedByValue>.*)")),
        ("headers-only", "an envelope placement ends byte pass-through, a partition placement splits aggregates, a space is a null pointer", _of_router(_placement)),
        ("missing-column-fails", "a dropped header column must be seen", _not_in_router("table.fields.additional.error.on.missing", "true")),
        ("no-event-timestamp", "a timestamptz column is text to the router and fails its read", _not_in_router("table.field.event.timestamp")),
        ("update-is-fatal", "the default only warns when a row is updated", _of_router(lambda s, p: _is(f"{p}table.op.invalid.behavior", "fatal")(s))),
        ("payload-untouched", "expanding JSON rewrites the producer's bytes", _not_in_router("table.expand.json.payload", "false")),
        ("key-is-text", "a JSON key hashes to another partition than everybody else's", _is("key.converter", _STRING)),
        ("value-is-bytes", "any other converter changes the value or fails on the first heartbeat", _all(
            _is("value.converter", "io.debezium.converters.BinaryDataConverter"),
            _is("value.converter.delegate.converter.type", "org.apache.kafka.connect.json.JsonConverter"),
            _is("value.converter.delegate.converter.type.schemas.enable", "false"),
        )),
        ("header-is-text", "a JSON header arrives in quotes", _is("header.converter", _STRING)),
        ("binary-is-bytes", "base64 and hex change the producer's bytes", _absent_or("binary.handling.mode", "bytes")),
        ("heartbeat", "without it a quiet outbox pins the WAL of a busy server", _between("heartbeat.interval.ms", 1000, 10_000)),
        ("heartbeat-message", "a heartbeat that writes no WAL confirms nothing", _heartbeat_message),
        ("messages-filtered", "the heartbeat's messages must not reach a topic", _messages_filtered),
        ("creation-defaults", "Connect refuses topic creation without both", _given("topic.creation.default.replication.factor", "topic.creation.default.partitions")),
        ("no-default-group", "naming the default group fails the connector", _default_group),
        ("transactional", "without it a kill repeats and an offset may be older than the records", _all(
            _is("exactly.once.support", "required"), _is("transaction.boundary", "poll")
        )),
        ("no-secret", "connector settings are readable by whoever reaches Connect", _secrets),
        ("log-masking-kept", "the pattern replaces Debezium's own instead of adding to it", _absent_or("custom.sanitize.pattern")),
        ("tls-said", "the mode must be a decision", _given("database.sslmode")),
        ("worker-settings", "the worker refuses client overrides", _worker_settings),
    )
)  # fmt: skip
