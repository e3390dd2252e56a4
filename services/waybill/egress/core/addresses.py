"""Which addresses Waybill connects to: public ones, and what a tenant's list of networks opens beyond them.

One table of ranges, each with the rule that refuses it. What is on no line and no global unicast address is refused
too, so that a range nobody thought of stays shut. Some ranges no list opens: whoever reaches a metadata service has
the machine's credentials, and an address that carries another one inside hides where the packet goes.

Sources: the IANA registries of special-purpose IPv4 and IPv6 addresses, RFC 4380 (Teredo), RFC 5214 (ISATAP),
RFC 6052 and RFC 8215 (NAT64), and what clouds document about their metadata services.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

__all__ = ["Address", "EgressRule", "Network", "opens", "read_address", "read_network", "refusal"]

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


class EgressRule(StrEnum):
    """Why Waybill does not go somewhere."""

    #: The host is written in a form that programs read in different ways.
    SPELLING = "spelling"
    #: Of no machine: 0.0.0.0/8, ::.
    UNSPECIFIED = "unspecified"
    #: The worker's own machine.
    LOOPBACK = "loopback"
    #: A private network.
    PRIVATE = "private"
    #: Shared by a provider's customers (carrier-grade NAT).
    SHARED = "shared"
    #: One network segment, where machines find neighbours without configuration.
    LINK_LOCAL = "link_local"
    #: A service of a cloud that hands out the machine's credentials; by address or by name.
    METADATA = "metadata"
    #: Many machines at once: multicast, broadcast.
    MULTICAST = "multicast"
    #: Set aside for tests, documentation, protocols or nothing yet.
    RESERVED = "reserved"
    #: An IPv6 address that carries an IPv4 address: mapped, compatible, 6to4, Teredo, ISATAP, NAT64.
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Addresses that are refused, by which rule, and whether a tenant's list may open them."""

    network: Network
    rule: EgressRule
    may_open: bool


def _ranges(rule: EgressRule, *networks: str, may_open: bool = True) -> tuple[Range, ...]:
    return tuple(Range(network=ip_network(text), rule=rule, may_open=may_open) for text in networks)


#: The first line that holds an address decides.
RANGES: Final[tuple[Range, ...]] = (
    *_ranges(
        EgressRule.METADATA,
        "169.254.169.254/32",  # most clouds
        "169.254.169.253/32",  # AWS: resolver
        "169.254.170.2/32",  # AWS: container credentials
        "169.254.170.23/32",  # AWS: pod identity
        "169.254.0.23/32",  # Tencent
        "100.100.100.200/32",  # Alibaba
        "168.63.129.16/32",  # Azure: a public address
        "192.0.0.192/32",  # Oracle
        "fd00:ec2::/64",  # AWS
        "fd20:ce::254/128",  # Google
        "fd00:c1::a9fe:a9fe/128",  # Oracle
        "fd00:42::42/128",  # Scaleway
        may_open=False,
    ),
    *_ranges(EgressRule.UNSPECIFIED, "0.0.0.0/8", "::/128", may_open=False),
    *_ranges(EgressRule.MULTICAST, "224.0.0.0/4", "255.255.255.255/32", "ff00::/8", may_open=False),
    *_ranges(EgressRule.LOOPBACK, "127.0.0.0/8", "::1/128"),
    *_ranges(EgressRule.PRIVATE, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    *_ranges(EgressRule.SHARED, "100.64.0.0/10"),
    *_ranges(EgressRule.LINK_LOCAL, "169.254.0.0/16", "fe80::/10"),
    *_ranges(EgressRule.EMBEDDED, "64:ff9b::/96"),  # NAT64: the address inside is judged as well
    *_ranges(EgressRule.EMBEDDED, "::/96", "::ffff:0:0/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", may_open=False),
    *_ranges(
        EgressRule.RESERVED,
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
    ),
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
#: The upper half of an ISATAP interface identifier, with and without the bit that says "unique".
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})


def refusal(address: Address, allowed: Sequence[Network] = ()) -> EgressRule | None:
    """Return the rule that keeps Waybill from connecting to an address, or None when it may.

    Args:
        address: where a connection would really go.
        allowed: the networks a tenant opened.
    """
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return EgressRule.LINK_LOCAL  # means something on this machine only
    found = next((line for line in RANGES if address in line.network), None)
    if found is None:
        return _outside_the_table(address)
    if not found.may_open or not any(address in network for network in allowed):
        return found.rule
    if address in _NAT64:
        return refusal(IPv4Address(int(address) & 0xFFFF_FFFF), allowed)
    return None


def _outside_the_table(address: Address) -> EgressRule | None:
    if isinstance(address, IPv4Address):
        return None
    if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return EgressRule.EMBEDDED
    return None if address in _GLOBAL_UNICAST else EgressRule.RESERVED


def read_network(text: str) -> Network:
    """Read one entry of a tenant's list: an address or a network in CIDR notation.

    Raises:
        ValueError: it is neither, or bits of a machine are set in it.
    """
    network = ip_network(text)
    if isinstance(network, IPv6Network) and network.network_address.scope_id is not None:
        raise ValueError("a zone is not part of a network")
    return network


def opens(network: Network) -> bool:
    """Say whether a list may hold a network: it lies wholly in a range that is refused but may be opened."""
    around = (
        line
        for line in RANGES
        if line.network.version == network.version and network.subnet_of(line.network)  # type: ignore[arg-type] # of one version
    )
    return next((line.may_open for line in around), False)


def read_address(text: str) -> Address:
    """Read an address as a resolver gives it.

    Raises:
        ValueError: it is none.
    """
    return ip_address(text)
