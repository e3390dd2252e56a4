"""The rules of `fabric.yaml` about where deliveries go and with what; listed among the others in `rules`."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from waybill.egress.core.addresses import opens, read_network
from waybill.egress.core.headers import MOST_HEADERS, is_value, refused_name, sounds_secret
from waybill.egress.core.targets import Refused, advice, judge_url
from waybill.fabric.core.document import Problem
from waybill.fabric.core.reading import Reading, problem_at

__all__ = ["allow_networks", "egress", "headers", "tls", "url"]


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


def tls(destination: Reading) -> Iterator[Problem]:
    """Judge whether TLS settings can mean anything."""
    settings: Reading | None = destination.found["tls"].value if "tls" in destination.found else None
    if settings is None:
        return
    if str(destination.get("url") or "https").lower().startswith("http:"):
        yield problem_at(destination.at("tls"), "tls", "expected an https url beside tls settings")
    for one, other in (("certificate", "key"), ("key", "certificate")):
        if one in settings.found and other not in settings.found:
            yield problem_at(settings.at(one), "tls", f"expected {other} beside {one}")


def headers(destination: Reading) -> Iterator[Problem]:
    """Judge what a destination's requests carry beyond Waybill's own headers."""
    declared = destination.many("headers")
    if len(declared) > MOST_HEADERS:
        yield problem_at(destination.at("headers"), "headers", f"expected at most {MOST_HEADERS} headers")
    seen: set[str] = set()
    for header in declared:
        name = header.get("name")
        if name is None:
            continue
        wrong = refused_name(name) or ("expected each name once" if name in seen else None)
        seen.add(name)
        if wrong is not None:
            yield problem_at(header.at("name"), "headers", wrong)
        elif ("value" in header.found) is ("secret" in header.found):
            yield problem_at(header.at("name"), "headers", "expected value or secret, exactly one of the two")
        elif "value" in header.found and sounds_secret(name):
            yield problem_at(header.at("value"), "headers", f"expected a secret: {name} sounds like a credential")
        elif "value" in header.found and not is_value(header.get("value")):
            yield problem_at(header.at("value"), "headers", "expected printable ASCII")
