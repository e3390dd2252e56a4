"""A destination that takes its deliveries from Kafka: what the file says of it, and what is refused beside it."""

import pytest

from waybill.contracts.fabric import FabricConfig, Transport
from waybill.fabric.core.document import Problem
from waybill.fabric.core.objects import from_objects, render, to_objects
from waybill.fabric.core.parse import parse

KAFKA = """\
apiVersion: waybill/v1
tenants:
  - name: acme
    outboxes:
      - {name: orders, dsn: {env: ORDERS_DSN}, aggregateTypes: [subject]}
    destinations:
      - name: billing
        transport: kafka
        owner: team-billing
        profile: durable_idempotent
        tradeoff: Keeps every identifier for 30 days.
        results: {keys: [whpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=], wait: 1h}
    routes:
      - {type: subject.erase, destinations: [billing]}
"""


def problem(text: str) -> Problem:
    found = parse(text.encode())
    assert not isinstance(found, FabricConfig), "expected a problem, the file was accepted"
    (only,) = found
    return only


@pytest.mark.requirement("RS-4")
def test_a_destination_over_kafka_needs_no_more_than_the_keys_of_its_results() -> None:
    config = parse(KAFKA.encode())

    assert isinstance(config, FabricConfig)
    found = config.destination("acme", "billing")
    assert found is not None
    assert (found.transport, found.url, found.listener_group) == (Transport.KAFKA, None, None)
    assert found.is_handed_over
    assert parse(render(config).encode()) == config
    assert from_objects(0, to_objects(config)) == config


def test_its_listeners_may_read_in_a_group_of_their_own() -> None:
    config = parse(KAFKA.replace("transport: kafka", "transport: kafka\n        listenerGroup: billing.eu-1").encode())

    assert isinstance(config, FabricConfig)
    found = config.destination("acme", "billing")
    assert found is not None
    assert found.listener_group == "billing.eu-1"


#: old text, new text → field, part of what was expected.
WRONG = {
    # A reader that dies reads again: it cannot be kept from doing it twice.
    "non_idempotent": ("durable_idempotent", "non_idempotent", "profile", "reads the delivery again"),
    "no results": ("results: {", "hmacSecret: {file: x} # {", "results", "a hand-over proves nothing"),
    "status as proof": ("owner: team", "proof: status\n        owner: team", "proof", "nothing answers"),
    "a url too": ("owner: team", "url: https://b.example\n        owner: team", "url", "go to the destination's topic"),
    "headers": ("owner: team", "headers: [{name: x-a, value: b}]\n        owner: team", "headers", "no request"),
    "tls": ("owner: team", "tls: {authorities: {file: ca}}\n        owner: team", "tls", "no request"),
    "no group": ("owner: team", "listenerGroup: 'a b'\n        owner: team", "listenerGroup", "a consumer group"),
}


@pytest.mark.requirement("GW-12")
@pytest.mark.parametrize(("old", "new", "field", "expected"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_kept_over_kafka_is_refused_and_says_why(old: str, new: str, field: str, expected: str) -> None:
    found = problem(KAFKA.replace(old, new))

    assert (found.path, found.rule) == (f"tenants[0].destinations[0].{field}", "transport")
    assert expected in found.message


def test_tls_and_headers_are_for_a_status_query() -> None:
    asked = "statusQuery: {url: 'https://b.example/status', settleAfter: 10m}"
    text = KAFKA.replace("owner: team", f"{asked}\n        tls: {{authorities: {{file: ca}}}}\n        owner: team")

    assert isinstance(parse(text.encode()), FabricConfig)


def test_a_destination_without_transport_still_needs_its_url() -> None:
    found = problem(KAFKA.replace("        transport: kafka\n", ""))

    assert (found.path, found.rule) == ("tenants[0].destinations[0].url", "required-keys")
    assert "or `transport: kafka`" in found.message
