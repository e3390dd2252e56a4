"""What a destination's url says about where requests go, known before anybody is asked.

A host is read only in its plain spelling: four decimal numbers, an IPv6 address in brackets, or a name in ASCII. The
other spellings (`0x7f.1`, `2130706433`, `127.1`, full-width digits, percent signs, a final dot, …) mean one thing to
one program and another to the next, so none of them is guessed at: it is refused, and the message says what to write.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from waybill.egress.core.addresses import Address, EgressRule, Network, read_address, refusal

__all__ = ["Refused", "Target", "advice", "judge_addresses", "judge_url"]

_URL: Final = re.compile(
    r"(?i:https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?:[/?].*)?"
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
#: A last label like this makes the whole host an IPv4 address to programs that follow the URL standard.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
#: Names of the worker's own machine, whatever a resolver says.
_LOCAL: Final = frozenset({"localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"})
#: Names of metadata services, whatever a resolver says.
_METADATA: Final = frozenset(
    {
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.azure.internal",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.internal",
        "metadata.tencentyun.com",
    }
)

_ADVICE: Final[dict[EgressRule, str]] = {
    EgressRule.SPELLING: "write the host as four decimal numbers, as an IPv6 address in brackets or as an ASCII name "
    "(xn-- for others) without a final dot, and a port from 1 to 65535",
    EgressRule.UNSPECIFIED: "give the destination the address of a machine",
    EgressRule.LOOPBACK: "if a listener on the worker's own machine is meant, add its network to the tenant's allowNetworks",
    EgressRule.PRIVATE: "if this private network is meant, add it to the tenant's allowNetworks",
    EgressRule.SHARED: "if this provider network is meant, add it to the tenant's allowNetworks",
    EgressRule.LINK_LOCAL: "if this network segment is meant, add it to the tenant's allowNetworks",
    EgressRule.METADATA: "metadata services are never a destination; correct the url or its DNS record",
    EgressRule.MULTICAST: "give the destination the address of one machine",
    EgressRule.RESERVED: "if this network is really used, add it to the tenant's allowNetworks",
    EgressRule.EMBEDDED: "write the IPv4 address itself; where NAT64 is meant, add 64:ff9b::/96 to the tenant's "
    "allowNetworks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Waybill does not go there."""

    rule: EgressRule
    #: The host or the address; never the rest of a url, which may hold a token.
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a url leads."""

    #: In lower case, without brackets.
    host: str
    #: Set when the host is an address already; nobody has to be asked then.
    address: Address | None


def advice(rule: EgressRule) -> str:
    """Return what to do about a refusal, in words."""
    return _ADVICE[rule]


def judge_url(url: str, allowed: Sequence[Network] = ()) -> Target | Refused:
    """Judge what can be known from a url alone."""
    found = _URL.fullmatch(url)
    if found is None or not 1 <= int(found["port"] or 1) <= 65_535:
        return Refused(rule=EgressRule.SPELLING, where="the url's host")
    host = found["host"].lower()
    try:
        address = _address(host)
    except ValueError:
        return Refused(rule=EgressRule.SPELLING, where=host[:255])
    rule = refusal(address, allowed) if address is not None else _refused_name(host, allowed)
    if rule is not None:
        return Refused(rule=rule, where=host)
    return Target(host=host.strip("[]"), address=address)


def judge_addresses(addresses: Iterable[str], allowed: Sequence[Network] = ()) -> Refused | None:
    """Judge what a name resolved to: one forbidden address refuses them all, since nobody knows which is next."""
    for text in addresses:
        try:
            rule = refusal(read_address(text), allowed)
        except ValueError:
            rule = EgressRule.SPELLING
        if rule is not None:
            return Refused(rule=rule, where=text)
    return None


def _address(host: str) -> Address | None:
    """Read a host that is an address; None for a name.

    Raises:
        ValueError: it is neither in its plain spelling.
    """
    if host.startswith("["):
        return IPv6Address(host[1:-1])
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return IPv4Address(host)
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("not a name")
    return None


def _refused_name(name: str, allowed: Sequence[Network]) -> EgressRule | None:
    if name in _METADATA:
        return EgressRule.METADATA
    if name in _LOCAL or name.endswith(".localhost"):
        return refusal(IPv4Address("127.0.0.1"), allowed)
    return None
