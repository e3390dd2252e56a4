"""The rules of `fabric.yaml` about how deliveries reach a destination; listed among the others in `rules`.

Over Kafka a hand-over proves nothing, and whoever reads a topic reads again what it had not committed when it died. So
what proves is asked for, and a destination that must not be offered anything twice is refused.
"""

from collections.abc import Iterator
from typing import Final

from waybill.contracts.fabric import Profile, Proof, Transport
from waybill.fabric.core.document import Problem
from waybill.fabric.core.reading import Reading, problem_at

__all__ = ["transport"]

#: What a request carries: over Kafka only the question of a status query is one.
_OF_REQUESTS: Final = ("tls", "headers")


def transport(destination: Reading) -> Iterator[Problem]:
    """Judge whether everything is there that the transport needs, and nothing that means nothing with it."""
    chosen = destination.get("transport")
    if chosen is Transport.KAFKA:
        yield from _kafka(destination)
    elif chosen is Transport.HTTP:
        if "url" not in destination.found and "url" not in destination.unreadable:
            message = "expected an http or https URL, the key is missing; or `transport: kafka`"
            yield problem_at(destination.at("url"), "required-keys", message)
        if "listener_group" in destination.found:
            message = "expected it only beside `transport: kafka`: a url is not read by a group"
            yield problem_at(destination.at("listener_group"), "transport", message)


def _kafka(destination: Reading) -> Iterator[Problem]:
    if "url" in destination.found:
        message = "expected none beside `transport: kafka`: deliveries go to the destination's topic"
        yield problem_at(destination.at("url"), "transport", message)
    if "results" not in destination.found:
        message = "expected `results: {keys, wait}` beside `transport: kafka`: a hand-over proves nothing, a signed result does"
        yield problem_at(destination.at("results"), "transport", message)
    if destination.get("profile") is Profile.NON_IDEMPOTENT:
        message = (
            "expected durable_idempotent or bounded_deduplication over Kafka: a listener that dies before it commits "
            "its offset reads the delivery again, so non_idempotent cannot be kept; take deliveries by HTTP instead"
        )
        yield problem_at(destination.at("profile"), "transport", message)
    if destination.get("proof") is Proof.STATUS:
        message = "expected receipt over Kafka: nothing answers a hand-over with a status"
        yield problem_at(destination.at("proof"), "transport", message)
    if "status_query" not in destination.found:
        for attr in _OF_REQUESTS:
            if attr in destination.found and destination.found[attr].value:
                message = "expected none over Kafka without a statusQuery: there is no request that would carry it"
                yield problem_at(destination.at(attr), "transport", message)
