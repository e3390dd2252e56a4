"""The rules of `fabric.yaml` beyond the shape of one value: each has an id, a sentence and one check.

`RULES` is the one list; the reference page repeats it by test. A check sees what could be read, skips what could
not (that is a problem already) and judges the rest, so that one run names everything that is wrong.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from waybill.contracts.events import DELIVERY_AGGREGATE, DESTINATION_AGGREGATE, EVENT_TYPES, RESERVED_PREFIX
from waybill.contracts.fabric import HORIZON_MARGIN_S, MAX_TTL_S, Profile
from waybill.fabric.core.document import Listing, Node, Problem, Table
from waybill.fabric.core.egress_rules import allow_networks, egress, headers, tls, url
from waybill.fabric.core.reading import Placed, Reading
from waybill.fabric.core.reading import problem_at as _problem
from waybill.fabric.core.transport_rules import transport
from waybill.fabric.core.type_rules import command_type
from waybill.kernel.units import format_duration, format_size

__all__ = ["RULES", "check", "find_secrets"]

MAX_PAYLOAD_BYTES: Final = 512 * 1024
MAX_TOTAL_S: Final = 300.0
MAX_CAP_S: Final = 86_400.0
MAX_REPEATS: Final = 100
MAX_SETTLE_S: Final = 86_400.0
MAX_RESULT_WAIT_S: Final = 7 * 86_400.0
MAX_IN_FLIGHT: Final = 100_000

RULES: Final[dict[str, str]] = {
    "yaml": "The file is one UTF-8 YAML document of at most 4 MiB, without aliases, tags and repeated keys.",
    "api-version": "`apiVersion` is `waybill/v1`.",
    "known-keys": "Every key is one this page lists.",
    "required-keys": "A key marked required is there, and no key is left without a value.",
    "type": "Every value is of its kind; durations and sizes carry a unit.",
    "name": "Names follow their pattern: they become parts of topics, groups and metric labels.",
    "unique": "A tenant is named once in the file; an outbox, a destination, a command type and the type of a route once in its tenant.",
    "secret-by-reference": "A secret is named by environment variable or file, exactly one of the two, never written.",
    "inline-secret": "No text in the file looks like a secret.",
    "outbox-place": "An outbox is one schema of one database: the same name in several tenants is the same dsn and schema, another name another.",
    "reserved": "No outbox is called `control`, and no command type begins with `waybill.`; a route may ask for a fabric event, in a tenant one of whose outboxes numbers `waybill.delivery`.",
    "aggregate-owner": "An aggregate type belongs to exactly one outbox of its tenant: two counters would break its sequence.",
    "route-destinations": "A route names destinations of its own tenant.",
    "level": "A route that asks for a level names only destinations that declare it or a higher one.",
    "repeats": "A `bounded_deduplication` destination says how much it remembers: 1 to 100 attempts, 1s to 29d.",
    "not-done": "Statuses that mean 'not done' are 400 to 599, and only a `non_idempotent` destination declares them.",
    "status-query": "A destination's 'not done' is final 1s to 1d after the last possible byte.",
    "results": "A destination signs its results with 1 to 4 keys written as `whpk_`, and they are waited for 1s to 7d.",
    "transport": "A destination has a `url`, or `transport: kafka` and none; over Kafka it declares `results` and `proof: receipt`, is not `non_idempotent`, and has `tls` and `headers` only beside a `statusQuery`.",
    "tradeoff": "Every destination says in words what its profile costs it.",
    "dedup-horizon": "A `durable_idempotent` destination keeps identifiers at least as long as the longest ttl of its routes and one day more.",
    "url": "A url is http or https, has a host, and holds neither credentials nor a fragment.",
    "allow-networks": "A tenant opens networks that are refused by default, never metadata services, multicast or the whole internet.",
    "egress": "A url's host is plainly spelled, and no address that is refused by default unless the tenant opens its network.",
    "tls": "Only an https url has tls settings; certificate and key go together.",
    "headers": "A header is named once, by a name that is neither Waybill's nor HTTP's own, and has a value or a secret; one that sounds like a credential has a secret.",
    "partitions": "A tenant has 1 to 100 partitions.",
    "timeouts": "0 < connect, read <= total <= 5m.",
    "retry": "0 < base <= cap <= 1d, and 0 to 10 hot attempts.",
    "concurrency": "1 to 1000 attempts in flight.",
    "limits": "A limit of attempts in flight is 1 to 100000.",
    "ttl": "A ttl is 1s to 29d, a day less than the commands topic keeps records.",
    "max-payload": "A payload limit is 1B to 512KiB; larger data travel as a reference.",
    "capability-version": "A capability version is 1 to 2147483647.",
    "schema-file": "A schema that is in a file of its own is named with the SHA-256 of the file's bytes.",
    "schema": "A schema is JSON Schema 2020-12, one object that refers to nothing but its own `$defs` and has no keyword that is not of the standard (`x-…` is free); or one Avro record.",
    "example": "An example keeps the schema of its version.",
    "type-version": "A command type has at least one version, each once, `v<major>.<minor>` in rising order.",
    "schema-narrower": "A version of a JSON Schema accepts whatever the version before it in the same major accepted.",
    "schema-unreadable": "Versions of an Avro schema in the same major read each other's data.",
    "never-removed": "Outboxes, destinations and command types stay with their tenant once applied; only routes may go. A tenant the file does not name is left as it is.",
    "fixed-partitions": "The number of partitions is fixed once applied: another number would move aggregates.",
    "fixed-schema": "The schema of an outbox is fixed once applied: its counters live there.",
    "transport-stays": "A destination keeps its transport once applied: what waits would go out by both.",
    "results-stay": "A destination that declares results goes on declaring them: deliveries may wait for one.",
    "group-start-lost": "The consumer group of an applied destination has its committed offsets; one that lost them is not given others.",
    "aggregate-stays": "An aggregate type stays with the outbox that numbers it.",
    "version-stays": "A version of a command type stays with the schema it was applied with.",
}


def check(fabric: Reading) -> Iterator[Problem]:
    """Judge everything that could be read, in the order of the file's objects."""
    tenants = fabric.many("tenants")
    yield from _unique(tenants, "name", "tenant")
    for tenant in tenants:
        for judge_tenant in _TENANT:
            yield from judge_tenant(tenant)
        for outbox in tenant.many("outboxes"):
            yield from _between(outbox, "max_payload_bytes", 1, MAX_PAYLOAD_BYTES, "max-payload", format_size)
        for destination in tenant.many("destinations"):
            for judge_destination in _DESTINATION:
                yield from judge_destination(destination)
        for declared in tenant.many("command_types"):
            yield from command_type(declared)
        for route in tenant.many("routes"):
            yield from _between(route, "ttl_s", 1.0, MAX_TTL_S, "ttl", format_duration)
            yield from _between(route, "capability_version", 1, 2**31 - 1, "capability-version")
    yield from _outbox_places(tenants)


def _between(
    reading: Reading, attr: str, least: float, most: float, rule: str, show: Callable[..., str] = str
) -> Iterator[Problem]:
    value = reading.get(attr)
    if attr in reading.found and not least <= value <= most:
        yield _problem(reading.at(attr), rule, f"expected {show(least)} to {show(most)}, got {show(value)}")


def _unique(readings: tuple[Reading, ...], attr: str, noun: str) -> Iterator[Problem]:
    lines: dict[str, int] = {}
    for reading in readings:
        name = reading.get(attr)
        if name is None:
            continue
        if name in lines:
            yield _problem(
                reading.at(attr), "unique", f"expected each {noun} once, {name} is already on line {lines[name]}"
            )
        lines.setdefault(name, reading.at(attr).line)


def _names(tenant: Reading) -> Iterator[Problem]:
    yield from _unique(tenant.many("outboxes"), "name", "outbox")
    yield from _unique(tenant.many("destinations"), "name", "destination")
    yield from _unique(tenant.many("command_types"), "name", "command type")
    yield from _unique(tenant.many("routes"), "command_type", "route")
    yield from _between(tenant, "partitions", 1, 100, "partitions")


def _outbox_places(tenants: tuple[Reading, ...]) -> Iterator[Problem]:
    named: dict[object, tuple[object, int]] = {}
    placed: dict[object, tuple[object, int]] = {}
    for outbox in (outbox for tenant in tenants for outbox in tenant.many("outboxes")):
        name, dsn, schema = outbox.get("name"), outbox.get("dsn"), outbox.get("schema")
        if name is None or dsn is None or not dsn.found or schema is None:
            continue
        place = (dsn.get("env"), dsn.get("file"), schema)
        there, line = named.setdefault(name, (place, outbox.line))
        if there != place:
            message = f"expected the dsn and schema of line {line}, where an outbox has this name: another place, another name"
            yield _problem(outbox.at("name"), "outbox-place", message)
            continue
        called, line = placed.setdefault(place, (name, outbox.line))
        if called != name:
            message = f"expected {called}, the outbox on line {line} has the same dsn and schema: one place, one name"
            yield _problem(outbox.at("name"), "outbox-place", message)


def _reserved(tenant: Reading) -> Iterator[Problem]:
    for outbox in tenant.many("outboxes"):
        if outbox.get("name") == "control":
            yield _problem(
                outbox.at("name"), "reserved", "expected another name, control is the control database's own outbox"
            )
    outboxes = [{placed.value for placed in outbox.get("aggregate_types") or ()} for outbox in tenant.many("outboxes")]
    events_outbox = next((each for each in outboxes if DELIVERY_AGGREGATE in each), frozenset[str]())
    for route in tenant.many("routes"):
        asked = str(route.get("command_type"))
        if asked in EVENT_TYPES:
            if not events_outbox:
                message = (
                    f"expected an outbox of this tenant that numbers {DELIVERY_AGGREGATE}, where events are written"
                )
                yield _problem(route.at("command_type"), "reserved", message)
            elif asked.startswith(DESTINATION_AGGREGATE) and DESTINATION_AGGREGATE not in events_outbox:
                message = f"expected the outbox that numbers {DELIVERY_AGGREGATE} to number {DESTINATION_AGGREGATE} too"
                yield _problem(route.at("command_type"), "reserved", message)
        elif asked.startswith(RESERVED_PREFIX):
            message = f"expected another type, waybill. is Waybill's own; the events are {', '.join(EVENT_TYPES)}"
            yield _problem(route.at("command_type"), "reserved", message)


def _aggregate_owners(tenant: Reading) -> Iterator[Problem]:
    owners: dict[str, Placed] = {}
    for outbox in tenant.many("outboxes"):
        for placed in outbox.get("aggregate_types") or ():
            owner = owners.setdefault(placed.value, placed)
            if owner is not placed:
                message = f"expected one owner for {placed.value}, it is already on line {owner.line}"
                yield _problem(placed, "aggregate-owner", message)


def _route_destinations(tenant: Reading) -> Iterator[Problem]:
    declared = {destination.get("name") for destination in tenant.many("destinations")}
    for route in tenant.many("routes"):
        for placed in route.get("destinations") or ():
            if placed.value not in declared:
                message = f"expected a destination of this tenant, {placed.value} is not declared"
                yield _problem(placed, "route-destinations", message)


def _levels(tenant: Reading) -> Iterator[Problem]:
    declared = {destination.get("name"): destination.get("level") for destination in tenant.many("destinations")}
    for route in tenant.many("routes"):
        least = route.get("least_level")
        for placed in (route.get("destinations") or ()) if least is not None else ():
            level = declared.get(placed.value)
            if placed.value in declared and (level is None or level < least):
                has = f"declares {level}" if level is not None else "declares no level"
                yield _problem(placed, "level", f"expected destinations of {least} or higher, {placed.value} {has}")


def _dedup_horizon(tenant: Reading) -> Iterator[Problem]:
    longest: dict[str | None, float] = {}
    for route in tenant.many("routes"):
        for placed in route.get("destinations") or ():
            longest[placed.value] = max(longest.get(placed.value, 0.0), route.get("ttl_s") or 0.0)
    for destination in tenant.many("destinations"):
        ttl_s, kept_s = longest.get(destination.get("name")), destination.get("dedup_retention_s")
        if destination.get("profile") is not Profile.DURABLE_IDEMPOTENT:
            continue  # what it remembers is not counted on
        if ttl_s is not None and kept_s is not None and kept_s < ttl_s + HORIZON_MARGIN_S:
            message = (
                f"expected at least {format_duration(ttl_s + HORIZON_MARGIN_S)}, the longest ttl of its routes "
                f"({format_duration(ttl_s)}) and one day, got {format_duration(kept_s)}"
            )
            yield _problem(destination.at("dedup_retention_s"), "dedup-horizon", message)


def _repeats(destination: Reading) -> Iterator[Problem]:
    bound: Reading | None = destination.found["repeats"].value if "repeats" in destination.found else None
    if bound is None:
        if destination.get("profile") is Profile.BOUNDED_DEDUPLICATION and "repeats" not in destination.found:
            message = "expected `repeats: {attempts, age}` beside bounded_deduplication: how much it remembers"
            yield _problem(destination.at("profile"), "repeats", message)
        return
    yield from _between(bound, "max_attempts", 1, MAX_REPEATS, "repeats")
    yield from _between(bound, "max_age_s", 1.0, MAX_TTL_S, "repeats", format_duration)


def _not_done(destination: Reading) -> Iterator[Problem]:
    declared = destination.get("not_done") or ()
    profile = destination.get("profile")
    for placed in declared:
        if not 400 <= placed.value <= 599:
            yield _problem(placed, "not-done", f"expected a status from 400 to 599, got {placed.value}")
        elif profile is not None and profile is not Profile.NON_IDEMPOTENT:
            yield _problem(placed, "not-done", f"expected none beside {profile}: it is for non_idempotent")


def _status_query(destination: Reading) -> Iterator[Problem]:
    source: Reading | None = destination.found["status_query"].value if "status_query" in destination.found else None
    if source is not None:
        yield from url(source)
        yield from _between(source, "settle_after_s", 1.0, MAX_SETTLE_S, "status-query", format_duration)


def _results(destination: Reading) -> Iterator[Problem]:
    source: Reading | None = destination.found["results"].value if "results" in destination.found else None
    if source is not None:
        yield from _between(source, "wait_s", 1.0, MAX_RESULT_WAIT_S, "results", format_duration)


def _timeouts(destination: Reading) -> Iterator[Problem]:
    limits: Reading | None = destination.found["timeouts"].value if "timeouts" in destination.found else None
    if limits is None:
        return
    total = limits.get("total_s")
    if total is None:
        return
    if not 0 < total <= MAX_TOTAL_S:
        yield _problem(
            limits.at("total_s"), "timeouts", f"expected more than 0s, at most 5m, got {format_duration(total)}"
        )
        return
    for attr in ("connect_s", "read_s"):
        value = limits.get(attr)
        if value is not None and not 0 < value <= total:
            message = (
                f"expected more than 0s, at most the total of {format_duration(total)}, got {format_duration(value)}"
            )
            yield _problem(limits.at(attr), "timeouts", message)


def _retry(destination: Reading) -> Iterator[Problem]:
    policy: Reading | None = destination.found["retry"].value if "retry" in destination.found else None
    if policy is None:
        return
    base, cap = policy.get("base_s"), policy.get("cap_s")
    if cap is not None and not 0 < cap <= MAX_CAP_S:
        yield _problem(policy.at("cap_s"), "retry", f"expected more than 0s, at most 1d, got {format_duration(cap)}")
    elif cap is not None and base is not None and not 0 < base <= cap:
        message = f"expected more than 0s, at most the cap of {format_duration(cap)}, got {format_duration(base)}"
        yield _problem(policy.at("base_s"), "retry", message)
    yield from _between(policy, "hot_attempts", 0, 10, "retry")


def _concurrency(destination: Reading) -> Iterator[Problem]:
    yield from _between(destination, "concurrency", 1, 1000, "concurrency")


def _limits(owner: Reading) -> Iterator[Problem]:
    limits: Reading | None = owner.found["limits"].value if "limits" in owner.found else None
    if limits is not None:
        yield from _between(limits, "in_flight", 1, MAX_IN_FLIGHT, "limits")


_TENANT: Final = (
    _names,
    _limits,
    _reserved,
    _aggregate_owners,
    _route_destinations,
    _levels,
    _dedup_horizon,
    allow_networks,
    egress,
)
_DESTINATION: Final = (
    transport,
    _repeats,
    _not_done,
    url,
    tls,
    headers,
    _status_query,
    _results,
    _timeouts,
    _retry,
    _concurrency,
    _limits,
)

#: What a pasted secret looks like; the problem names the place, never the text.
_SECRETS: Final = re.compile(
    r"""-----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | \bwhsec_[A-Za-z0-9+/=]{8}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bgh[pousr]_[A-Za-z0-9]{20}
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.
    | [a-z][a-z0-9+.-]{0,30}://[^/\s:@]*:[^/\s@]+@
    | (?:^|[?&;\s,{])(?:pass(?:word|wd)?|pwd|secret|token|api[_-]?key|access[_-]?key|sig(?:nature)?)\s*[=:]\s*[^\s&]
    """,
    re.IGNORECASE | re.VERBOSE,
)


def find_secrets(node: Node, path: str = "") -> Iterator[Problem]:
    """Find texts anywhere in the document that look like a secret."""
    if isinstance(node, Table):
        for key, (_, value) in node.entries.items():
            yield from find_secrets(value, f"{path}.{key[:40]}" if path else key[:40])
    elif isinstance(node, Listing):
        for number, value in enumerate(node.items):
            yield from find_secrets(value, f"{path}[{number}]")
    elif isinstance(node.value, str) and _SECRETS.search(node.value):
        message = "expected no secret in the file: put it into the environment or a file and refer to it"
        yield Problem(line=node.line, path=path, rule="inline-secret", message=message)
