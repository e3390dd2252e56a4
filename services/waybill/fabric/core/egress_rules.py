"""The rules of `fabric.yaml` about where deliveries go and with what; listed among the others in `rules`."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from waybill.egress.core.addresses import opens, read_network
from waybill.egress.core.targets import Refused, advice, judge_url
from waybill.fabric.core.document import Problem
from waybill.fabric.core.reading import Reading, problem_at

__all__ = ["allow_networks", "egress", "url"]


def url(place: Reading) -> Iterator[Problem]:
    """Judge whether a url is one, and holds nothing but an address."""
    if "url" not in place.found:
        return
    wrong = _what_is_wrong(place.get("url"))
    if wrong is not None:
        yield problem_at(place.at("url"), "url", wrong)


def _what_is_wrong(text: str) -> str | None:
    try:
        parts = urlsplit(text)
        named, _ = parts.hostname, parts.port
    except ValueError:
        return "expected an http or https URL with a host and a port from 1 to 65535"
    plain = text.isprintable() and " " not in text
    if parts.scheme not in {"http", "https"} or not named or not plain:
        return "expected an http or https URL with a host, without spaces"
    if "@" in parts.netloc:
        return "expected a URL without credentials; sign with hmacSecret instead"
    if "#" in text:
        return "expected a URL without a fragment"
    return None


def allow_networks(tenant: Reading) -> Iterator[Problem]:
    """Judge what a tenant opens beyond public addresses."""
    for placed in tenant.get("allow_networks") or ():
        if not opens(read_network(placed.value)):
            message = f"expected a network inside one that is refused by default and may be opened, got {placed.value}"
            yield problem_at(placed, "allow-networks", message)


def egress(tenant: Reading) -> Iterator[Problem]:
    """Judge what a url says by itself; what its name resolves to is judged where requests are sent from."""
    allowed = tuple(read_network(placed.value) for placed in tenant.get("allow_networks") or ())
    for place in _places(tenant):
        if "url" not in place.found or _what_is_wrong(place.get("url")) is not None:
            continue
        judged = judge_url(place.get("url"), allowed)
        if isinstance(judged, Refused):
            message = (
                f"expected somewhere Waybill goes, {judged.where} is refused ({judged.rule}): {advice(judged.rule)}"
            )
            yield problem_at(place.at("url"), "egress", message)


def _places(tenant: Reading) -> Iterator[Reading]:
    """Return everything with a url that requests are sent to."""
    for destination in tenant.many("destinations"):
        yield destination
        if "status_query" in destination.found:
            yield destination.found["status_query"].value
