"""`fabric.yaml` alone: what is wrong is said with line, field and what was expected, everything at once."""

import pytest

from waybill.contracts.fabric import FabricConfig, HeaderConfig, Profile, RepeatBound, SecretRef, TlsConfig
from waybill.fabric.core.document import Problem
from waybill.fabric.core.parse import parse
from waybill.fabric.core.rules import RULES

WHOLE = """\
apiVersion: waybill/v1
tenants:
  - name: acme
    partitions: 4
    outboxes:
      - name: orders
        dsn: {env: ORDERS_DSN}
        schema: waybill
        aggregateTypes: [subject, consent]
        maxPayload: 128KiB
    destinations:
      - name: crm
        url: https://crm.example/commands
        owner: team-crm
        profile: durable_idempotent
        tradeoff: Keeps every identifier for 30 days.
        proof: receipt
        onUnsettled: halt
        dedupRetention: 30d
        retry: {base: 500ms, cap: 5m, hotAttempts: 2}
        timeouts: {connect: 2s, read: 4s, total: 8s}
        concurrency: 16
        hmacSecret: {file: secrets/crm}
    routes:
      - type: subject.erase
        destinations: [crm]
        ttl: 7d
        capability: erase
        capabilityVersion: 2
        forms: [clear, sealed]
        onExpiry: continue
"""


def problems(text: str) -> tuple[Problem, ...]:
    found = parse(text.encode())
    assert not isinstance(found, FabricConfig), "expected problems, the file was accepted"
    return found


def test_a_whole_file_becomes_records() -> None:
    config = parse(WHOLE.encode())

    assert isinstance(config, FabricConfig)
    destination = config.destination("acme", "crm")
    route = config.route("acme", "subject.erase")
    assert destination is not None
    assert route is not None
    assert (config.version, config.tenants[0].partitions) == (0, 4)
    assert config.tenants[0].outboxes[0].aggregate_types == ("consent", "subject")
    assert config.tenants[0].outboxes[0].max_payload_bytes == 131_072
    assert (destination.retry.base_s, destination.timeouts.total_s) == (0.5, 8.0)
    assert (destination.profile, destination.hmac_secret) == (
        Profile.DURABLE_IDEMPOTENT,
        SecretRef(file="secrets/crm"),
    )
    assert (route.ttl_s, route.capability_version, sorted(route.forms)) == (604_800.0, 2, ["clear", "sealed"])


#: old text, new text → line, path, rule, part of what was expected.
WRONG = {
    # The document.
    "version": ("waybill/v1", "waybill/v2", 1, "apiVersion", "api-version", "expected waybill/v1"),
    "broken yaml": ("{env: ORDERS_DSN}", "{env: ORDERS_DSN", 8, "", "yaml", "not readable as YAML"),
    "repeated key": ("proof: receipt", "url: https://b", 17, "tenants[0].destinations[0].url", "yaml", "line 13"),
    "alias": ("[crm]", "*a", 26, "", "yaml", "not readable as YAML"),
    "tag": ("capability: erase", "capability: !x erase", 28, "tenants[0].routes[0].capability", "yaml", "tags"),
    # Keys.
    "typing slip": ("partitions", "partition", 4, "tenants[0].partition", "known-keys", "did you mean partitions?"),
    "strange key": ("proof:", "zzz:", 17, "tenants[0].destinations[0].zzz", "known-keys", "known are name, url"),
    "missing": ("owner: team-crm", "# nobody", 12, "tenants[0].destinations[0].owner", "required-keys", "team"),
    "empty": ("owner: team-crm", "owner:", 14, "tenants[0].destinations[0].owner", "required-keys", "no value"),
    # Kinds and units.
    "no unit": ("ttl: 7d", "ttl: 7", 27, "tenants[0].routes[0].ttl", "type", "with a unit"),
    "wrong unit": ("128KiB", "128KB", 10, "tenants[0].outboxes[0].maxPayload", "type", "256KiB"),
    "fraction": ("ttl: 7d", "ttl: 1.5d", 27, "tenants[0].routes[0].ttl", "type", "got '1.5d'"),
    "truth": ("owner: team-crm", "owner: yes", 14, "tenants[0].destinations[0].owner", "type", "truth value"),
    "text": ("concurrency: 16", "concurrency: many", 22, "tenants[0].destinations[0].concurrency", "type", "whole"),
    "choice": ("proof: receipt", "proof: maybe", 17, "tenants[0].destinations[0].proof", "type", "receipt, status"),
    "not a list": ("[crm]", "crm", 26, "tenants[0].routes[0].destinations", "type", "expected a list"),
    "empty list": ("[crm]", "[]", 26, "tenants[0].routes[0].destinations", "type", "at least one"),
    "bad form": ("sealed]", "open]", 30, "tenants[0].routes[0].forms[1]", "type", "clear, sealed, reference"),
    "not an object": ("{base: 500ms, cap: 5m, hotAttempts: 2}", "5", 20, "tenants[0].destinations[0].retry", "type", ""),
    # Names.
    "tenant name": ("name: acme", "name: Acme", 3, "tenants[0].name", "name", "lower case"),
    "long name": ("name: acme", "name: " + "a" * 31, 3, "tenants[0].name", "name", "at most 30"),
    "type name": ("[subject, consent]", "[Subject, consent]", 9, "tenants[0].outboxes[0].aggregateTypes[0]", "name", ""),
    "schema": ("schema: waybill", "schema: pg_x", 8, "tenants[0].outboxes[0].schema", "name", "no quotes"),
    "command type": ("type: subject.erase", "type: subject erase", 25, "tenants[0].routes[0].type", "name", ""),
    # Between objects.
    "no such destination": ("[crm]", "[crm, erp]", 26, "tenants[0].routes[0].destinations[1]", "route-destinations", "erp"),
    "no level": ("onExpiry: continue", "leastLevel: L1", 26, "tenants[0].routes[0].destinations[0]", "level", "declares no level"),
    "unknown level": ("proof: receipt", "level: L4", 17, "tenants[0].destinations[0].level", "type", "L3"),
    "bounded": ("durable_idempotent", "bounded_deduplication", 15, "tenants[0].destinations[0].profile", "repeats", "how much it remembers"),
    "no repeats": ("proof: receipt", "repeats: {attempts: 0, age: 1m}", 17, "tenants[0].destinations[0].repeats.attempts", "repeats", "1 to 100"),
    "old repeats": ("proof: receipt", "repeats: {attempts: 2, age: 30d}", 17, "tenants[0].destinations[0].repeats.age", "repeats", "29d"),
    "not a refusal": ("proof: receipt", "notDone: [200]", 17, "tenants[0].destinations[0].notDone[0]", "not-done", "400 to 599"),
    "not needed": ("proof: receipt", "notDone: [503]", 17, "tenants[0].destinations[0].notDone[0]", "not-done", "non_idempotent"),
    "no settling": ("proof: receipt", "statusQuery: {url: 'http://crm.example/status'}", 17, "tenants[0].destinations[0].statusQuery.settleAfter", "required-keys", ""),
    "settled at once": ("proof: receipt", "statusQuery: {url: 'http://crm.example/status', settleAfter: 500ms}", 17, "tenants[0].destinations[0].statusQuery.settleAfter", "status-query", "1s to 1d"),
    "results of nobody": ("proof: receipt", "results: {wait: 1h}", 17, "tenants[0].destinations[0].results.keys", "required-keys", ""),
    "results waited for for ever": ("proof: receipt", "results: {keys: [whpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=], wait: 30d}", 17, "tenants[0].destinations[0].results.wait", "results", "1s to 7d"),
    "a private key": ("proof: receipt", "results: {keys: [whsk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=]}", 17, "tenants[0].destinations[0].results.keys[0]", "results", "public key"),
    "group of a url": ("proof: receipt", "listenerGroup: crm", 17, "tenants[0].destinations[0].listenerGroup", "transport", "only beside"),
    "asked nowhere": ("proof: receipt", "statusQuery: {url: /status, settleAfter: 10m}", 17, "tenants[0].destinations[0].statusQuery.url", "url", "http or https"),
    "no tradeoff": ("Keeps every identifier for 30 days.", "' '", 16, "tenants[0].destinations[0].tradeoff", "tradeoff", "in words"),
    "horizon": ("dedupRetention: 30d", "dedupRetention: 191h", 19, "tenants[0].destinations[0].dedupRetention", "dedup-horizon", "at least 8d"),
    "ttl": ("ttl: 7d", "ttl: 0s", 27, "tenants[0].routes[0].ttl", "ttl", "1s to 29d"),
    "reserved type": ("type: subject.erase", "type: waybill.canary", 25, "tenants[0].routes[0].type", "reserved", "another type"),
    "unknown event": ("type: subject.erase", "type: waybill.delivery.done", 25, "tenants[0].routes[0].type", "reserved", "waybill.delivery.acknowledged, waybill.delivery.ambiguous"),
    "event nobody writes": ("type: subject.erase", "type: waybill.delivery.failed", 25, "tenants[0].routes[0].type", "reserved", "numbers waybill.delivery"),
    # Limits.
    "partitions": ("partitions: 4", "partitions: 101", 4, "tenants[0].partitions", "partitions", "1 to 100, got 101"),
    "no partitions": ("partitions: 4", "partitions: 0", 4, "tenants[0].partitions", "partitions", "1 to 100"),
    "concurrency": ("concurrency: 16", "concurrency: 1001", 22, "tenants[0].destinations[0].concurrency", "concurrency", "1 to 1000"),
    "no rate": ("concurrency: 16", "limits: {rate: 5}", 22, "tenants[0].destinations[0].limits.rate", "type", "10/m"),
    "nothing in flight": ("concurrency: 16", "limits: {inFlight: 0}", 22, "tenants[0].destinations[0].limits.inFlight", "limits", "1 to 100000"),
    "tenant in flight": ("partitions: 4", "limits: {inFlight: 100001}", 4, "tenants[0].limits.inFlight", "limits", "1 to 100000"),
    "payload": ("128KiB", "1MiB", 10, "tenants[0].outboxes[0].maxPayload", "max-payload", "512KiB"),
    "version number": ("capabilityVersion: 2", "capabilityVersion: 0", 29, "tenants[0].routes[0].capabilityVersion", "capability-version", "1 to"),
    "total": ("total: 8s", "total: 6m", 21, "tenants[0].destinations[0].timeouts.total", "timeouts", "5m"),
    "read over total": ("read: 4s", "read: 9s", 21, "tenants[0].destinations[0].timeouts.read", "timeouts", "total of 8s"),
    "default over total": (", read: 4s", "", 21, "tenants[0].destinations[0].timeouts.read", "timeouts", "got 15s"),
    "no connect time": ("connect: 2s", "connect: 0s", 21, "tenants[0].destinations[0].timeouts.connect", "timeouts", ""),
    "base over cap": ("base: 500ms", "base: 6m", 20, "tenants[0].destinations[0].retry.base", "retry", "cap of 5m"),
    "cap": ("cap: 5m", "cap: 25h", 20, "tenants[0].destinations[0].retry.cap", "retry", "at most 1d"),
    "hot": ("hotAttempts: 2", "hotAttempts: 11", 20, "tenants[0].destinations[0].retry.hotAttempts", "retry", "0 to 10"),
    # Addresses.
    "scheme": ("https://crm", "ftp://crm", 13, "tenants[0].destinations[0].url", "url", "http or https"),
    "no host": ("https://crm.example/commands", "https:///x", 13, "tenants[0].destinations[0].url", "url", "host"),
    "port": ("crm.example/", "crm.example:99999/", 13, "tenants[0].destinations[0].url", "url", "port"),
    "user": ("https://crm", "https://me@crm", 13, "tenants[0].destinations[0].url", "url", "without credentials"),
    "half an identity": ("proof: receipt", "tls: {certificate: {env: A}}", 17, "tenants[0].destinations[0].tls.certificate", "tls", "key beside certificate"),
    "the other half": ("proof: receipt", "tls: {key: {env: A}}", 17, "tenants[0].destinations[0].tls.key", "tls", "certificate beside key"),
    "tls inline": ("proof: receipt", "tls: {authorities: /etc/ca.pem}", 17, "tenants[0].destinations[0].tls.authorities", "secret-by-reference", "{env: NAME}"),
    "no verification": ("proof: receipt", "tls: {insecure: true}", 17, "tenants[0].destinations[0].tls.insecure", "known-keys", "known are authorities, certificate, key"),
    "reserved header": ("proof: receipt", "headers: [{name: webhook-id, value: x}]", 17, "tenants[0].destinations[0].headers[0].name", "headers", "set by Waybill"),
    "header name": ("proof: receipt", "headers: [{name: X-Tenant, value: x}]", 17, "tenants[0].destinations[0].headers[0].name", "headers", "lower case"),
    "header value": ("proof: receipt", 'headers: [{name: x-a, value: "a\\r\\nb: c"}]', 17, "tenants[0].destinations[0].headers[0].value", "headers", "printable ASCII"),
    "header of nothing": ("proof: receipt", "headers: [{name: x-a}]", 17, "tenants[0].destinations[0].headers[0].name", "headers", "value or secret"),
    "header of both": ("proof: receipt", "headers: [{name: x-a, value: b, secret: {env: A}}]", 17, "tenants[0].destinations[0].headers[0].name", "headers", "exactly one"),
    "header twice": ("proof: receipt", "headers: [{name: x-a, value: b}, {name: x-a, value: c}]", 17, "tenants[0].destinations[0].headers[1].name", "headers", "once"),
    "plain credential": ("proof: receipt", "headers: [{name: x-api-key, value: b}]", 17, "tenants[0].destinations[0].headers[0].value", "headers", "sounds like a credential"),
    "loopback": ("https://crm.example/", "http://127.0.0.1:8000/", 13, "tenants[0].destinations[0].url", "egress", "127.0.0.1 is refused (loopback): if a listener"),
    "metadata": ("https://crm.example/", "http://169.254.169.254/", 13, "tenants[0].destinations[0].url", "egress", "never a destination"),
    "odd spelling": ("https://crm.example/", "http://0x7f.1/", 13, "tenants[0].destinations[0].url", "egress", "four decimal numbers"),
    "another network": ("partitions: 4", "allowNetworks: [8.8.8.0/24]", 4, "tenants[0].allowNetworks[0]", "allow-networks", "refused by default"),
    "the internet": ("partitions: 4", "allowNetworks: [0.0.0.0/0]", 4, "tenants[0].allowNetworks[0]", "allow-networks", "may be opened"),
    "no network": ("partitions: 4", "allowNetworks: [crm.example]", 4, "tenants[0].allowNetworks[0]", "allow-networks", "an address or a network"),
    "fragment": ("/commands", "/commands#x", 13, "tenants[0].destinations[0].url", "url", "fragment"),
    # Secrets.
    "dsn inline": ("{env: ORDERS_DSN}", "postgresql://a/b", 7, "tenants[0].outboxes[0].dsn", "secret-by-reference", "{env: NAME}"),
    "hmac inline": ("{file: secrets/crm}", "hunter2hunter2", 23, "tenants[0].destinations[0].hmacSecret", "secret-by-reference", "never the secret"),
    "both": ("{env: ORDERS_DSN}", "{env: A, file: b}", 7, "tenants[0].outboxes[0].dsn", "secret-by-reference", "exactly one"),
    "neither": ("{env: ORDERS_DSN}", "{}", 7, "tenants[0].outboxes[0].dsn", "secret-by-reference", "exactly one"),
    "env is the secret": ("ORDERS_DSN", "'a b c'", 7, "tenants[0].outboxes[0].dsn.env", "secret-by-reference", "environment"),
    "dsn with password": ("{env: ORDERS_DSN}", "'postgresql://u:pw1234@h/d'", 7, "tenants[0].outboxes[0].dsn", "inline-secret", ""),
    "url with password": ("https://crm", "https://u:pw1234@crm", 13, "tenants[0].destinations[0].url", "inline-secret", ""),
    "token in url": ("/commands", "/commands?token=abc123", 13, "tenants[0].destinations[0].url", "inline-secret", ""),
    "webhook secret": ("Keeps every identifier for 30 days.", "whsec_C2FVsBQIhrscChlQIMV", 16, "tenants[0].destinations[0].tradeoff", "inline-secret", ""),
    "keyword dsn": ("{file: secrets/crm}", "{file: 'host=a password=b'}", 23, "tenants[0].destinations[0].hmacSecret.file", "inline-secret", ""),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "path", "rule", "expected"), WRONG.values(), ids=WRONG.keys())
def test_one_mistake_is_named_with_line_field_and_expectation(
    old: str, new: str, line: int, path: str, rule: str, expected: str
) -> None:
    assert old in WHOLE

    (problem,) = problems(WHOLE.replace(old, new, 1))

    assert (problem.line, problem.path, problem.rule) == (line, path, rule)
    assert expected in problem.message


def test_events_about_destinations_are_numbered_where_those_about_deliveries_are() -> None:
    asked = WHOLE.replace("type: subject.erase", "type: waybill.destination.paused")
    numbered = asked.replace("[subject, consent]", "[waybill.delivery]")

    (problem,) = problems(numbered)

    assert (problem.line, problem.rule) == (25, "reserved")
    assert "number waybill.destination too" in problem.message
    both = asked.replace("[subject, consent]", "[waybill.delivery, waybill.destination]")
    assert isinstance(parse(both.encode()), FabricConfig)


@pytest.mark.parametrize(
    ("declared", "asked", "is_accepted"), [("L0", "L1", False), ("L1", "L1", True), ("L3", "L2", True)]
)
def test_a_route_asks_for_a_level_its_destinations_declare(declared: str, asked: str, is_accepted: bool) -> None:
    text = WHOLE.replace("proof: receipt", f"level: {declared}").replace("onExpiry: continue", f"leastLevel: {asked}")

    found = parse(text.encode())

    if is_accepted:
        assert isinstance(found, FabricConfig)
        assert found.tenants[0].destinations[0].level == declared
    else:
        assert [problem.rule for problem in found] == ["level"]  # type: ignore[union-attr] # a tuple of problems
        assert f"crm declares {declared}" in found[0].message  # type: ignore[index] # as above


#: A second tenant, outbox, destination or route that clashes with the first.
CLASHES = {
    "tenant": ("  - name: acme\n", 32, "tenants[1].name", "unique"),
    "outbox": ("  - name: b\n    outboxes:\n      - {name: o, dsn: {env: X}, aggregateTypes: [a]}\n      - {name: o, dsn: {env: Y}, aggregateTypes: [b]}\n", 35, "tenants[1].outboxes[1].name", "unique"),
    "aggregate type": ("  - name: b\n    outboxes:\n      - {name: o, dsn: {env: X}, aggregateTypes: [a]}\n      - {name: p, dsn: {env: Y}, aggregateTypes: [c, a]}\n", 35, "tenants[1].outboxes[1].aggregateTypes[1]", "aggregate-owner"),
    "same database": ("  - name: b\n    outboxes:\n      - {name: o, dsn: {env: ORDERS_DSN}, aggregateTypes: [a]}\n", 34, "tenants[1].outboxes[0].name", "outbox-place"),
    "same name elsewhere": ("  - name: b\n    outboxes:\n      - {name: orders, dsn: {env: OTHER}, aggregateTypes: [a]}\n", 34, "tenants[1].outboxes[0].name", "outbox-place"),
    "reserved outbox": ("  - name: b\n    outboxes:\n      - {name: control, dsn: {env: X}, aggregateTypes: [a]}\n", 34, "tenants[1].outboxes[0].name", "reserved"),
    "foreign destination": ("  - name: b\n    routes:\n      - {type: x, destinations: [crm]}\n", 34, "tenants[1].routes[0].destinations[0]", "route-destinations"),
}  # fmt: skip


@pytest.mark.parametrize(("addition", "line", "path", "rule"), CLASHES.values(), ids=CLASHES.keys())
def test_a_clash_is_named_where_the_second_one_stands(addition: str, line: int, path: str, rule: str) -> None:
    found = problems(WHOLE + addition)

    assert [(problem.line, problem.path, problem.rule) for problem in found] == [(line, path, rule)]


def test_the_same_aggregate_type_in_two_tenants_is_two_types() -> None:
    other = "  - name: b\n    outboxes:\n      - {name: other, dsn: {env: X}, aggregateTypes: [subject]}\n"

    assert isinstance(parse((WHOLE + other).encode()), FabricConfig)


def test_one_outbox_may_serve_several_tenants() -> None:
    other = "  - name: b\n    outboxes:\n      - {name: orders, dsn: {env: ORDERS_DSN}, aggregateTypes: [subject]}\n"

    assert isinstance(parse((WHOLE + other).encode()), FabricConfig)


def test_everything_that_is_wrong_is_said_at_once_in_the_order_of_lines() -> None:
    text = WHOLE.replace("partitions: 4", "partition: 4").replace("128KiB", "128").replace("https", "ftp")
    text = (
        text.replace("durable_idempotent", "bounded_deduplication")
        .replace("[crm]", "[crm, erp]")
        .replace("ttl: 7d", "ttl: x")
    )

    found = problems(text)

    assert [problem.line for problem in found] == [4, 10, 13, 15, 26, 27]


def test_tls_and_headers_are_read() -> None:
    text = WHOLE.replace(
        "proof: receipt",
        "tls: {authorities: {file: ca.pem}, certificate: {env: CRT}, key: {env: KEY}}\n"
        "        headers: [{name: x-b, value: acme}, {name: authorization, secret: {env: TOKEN}}]",
    )
    config = parse(text.encode())

    assert isinstance(config, FabricConfig)
    destination = config.destination("acme", "crm")
    assert destination is not None
    assert destination.tls == TlsConfig(
        authorities=SecretRef(file="ca.pem"), certificate=SecretRef(env="CRT"), key=SecretRef(env="KEY")
    )
    assert destination.headers == (
        HeaderConfig(name="x-b", value="acme"),
        HeaderConfig(name="authorization", secret=SecretRef(env="TOKEN")),
    )
    plain = problems(text.replace("https://crm", "http://crm"))
    assert [(problem.path, problem.rule) for problem in plain] == [("tenants[0].destinations[0].tls", "tls")]


def test_more_headers_than_twenty_are_refused() -> None:
    many = ", ".join(f"{{name: x-{number}, value: b}}" for number in range(21))

    (problem,) = problems(WHOLE.replace("proof: receipt", f"headers: [{many}]"))

    assert (problem.rule, problem.message) == ("headers", "expected at most 20 headers")


def test_a_tenant_opens_networks_for_its_own_destinations_only() -> None:
    inside = WHOLE.replace("https://crm.example/", "http://10.20.0.7:8000/")
    opened = inside.replace("partitions: 4", "allowNetworks: [10.20.0.0/16, 127.0.0.1]")
    other = "  - name: b\n    destinations:\n      - {name: c, url: 'http://10.20.0.7/', owner: o, profile: durable_idempotent, tradeoff: t}\n"

    config = parse(opened.encode())

    assert isinstance(config, FabricConfig)
    assert config.tenants[0].allow_networks == ("10.20.0.0/16", "127.0.0.1/32")
    assert [problem.path for problem in problems(opened + other)] == ["tenants[1].destinations[0].url"]


@pytest.mark.requirement("GW-7")
def test_each_profile_is_accepted_with_what_it_must_say() -> None:
    bounded = WHOLE.replace("durable_idempotent", "bounded_deduplication\n        repeats: {attempts: 4, age: 5m}")
    never = WHOLE.replace("durable_idempotent", "non_idempotent\n        notDone: [503, 429]")

    found = [parse(text.encode()) for text in (bounded, never.replace("dedupRetention: 30d", "dedupRetention: 1d"))]

    destinations = [config.destination("acme", "crm") for config in found if isinstance(config, FabricConfig)]
    said = [(each.profile, each.repeats, each.not_done) for each in destinations if each is not None]
    assert said == [
        (Profile.BOUNDED_DEDUPLICATION, RepeatBound(max_attempts=4, max_age_s=300.0), frozenset()),
        (Profile.NON_IDEMPOTENT, RepeatBound(), frozenset({429, 503})),
    ]


@pytest.mark.requirement("GW-7")
def test_the_profile_is_required_and_its_tradeoff_is_never_empty() -> None:
    without = WHOLE.replace("        profile: durable_idempotent\n", "").replace(
        "Keeps every identifier for 30 days.", "''"
    )

    assert [(problem.path, problem.rule) for problem in problems(without)] == [
        ("tenants[0].destinations[0].profile", "required-keys"),
        ("tenants[0].destinations[0].tradeoff", "tradeoff"),
    ]


@pytest.mark.requirement("GW-8")
@pytest.mark.parametrize(("kept", "accepted"), [("8d", True), ("691199s", False)], ids=["horizon", "a second less"])
def test_retention_below_the_retry_horizon_is_refused(kept: str, accepted: bool) -> None:
    found = parse(WHOLE.replace("dedupRetention: 30d", f"dedupRetention: {kept}").encode())

    assert isinstance(found, FabricConfig) is accepted


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"", 0),
        (b"\xff\xfe", 1),
        (b"apiVersion: waybill/v1\n\xff", 2),
        (b"a: \x00", 0),
        (b"[" * 600, 0),
        (b"a: 1\n---\nb: 2\n", 2),
        (b"#" * (4 * 1_048_576 + 1), 0),
        (b"a: " + b"9" * 5000, 1),
        (b"- waybill", 1),
        (b"? [a]\n: b", 1),
    ],
    ids=["empty", "bytes", "second line", "control", "deep", "two", "huge", "number", "list", "key"],
)
def test_what_is_no_such_document_is_refused_and_never_raises(text: bytes, line: int) -> None:
    found = parse(text)

    assert not isinstance(found, FabricConfig)
    assert found[0].line == line


def test_no_problem_ever_repeats_a_secret() -> None:
    secret = "hunter2-swordfish"
    text = WHOLE.replace("{env: ORDERS_DSN}", f"'postgres://u:{secret}@h/d'").replace("{file: secrets/crm}", secret)
    text = text.replace("https://crm", f"https://u:{secret}@crm").replace("owner: team-crm", f"owner: *{secret}")

    assert secret not in repr(problems(text))
    assert secret not in repr(problems(text.replace(f"*{secret}", "team-crm")))


def test_every_rule_a_problem_names_is_in_the_table() -> None:
    named = {rule for _, _, _, _, rule, _ in WRONG.values()} | {rule for _, _, _, rule in CLASHES.values()}
    of_the_plan = {
        "group-start-lost",
        "never-removed",
        "fixed-partitions",
        "fixed-schema",
        "aggregate-stays",
        "results-stay",
        "version-stays",
        "transport-stays",
    }
    of_the_catalogue = {"schema", "schema-file", "schema-narrower", "schema-unreadable", "example", "type-version"}

    assert named | of_the_plan | of_the_catalogue == set(RULES)
