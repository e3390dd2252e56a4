"""Which addresses Waybill connects to, and how a url's host must be spelled for anybody to know which."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.egress.core.addresses import RANGES, EgressRule, opens, read_network, refusal
from waybill.egress.core.targets import Refused, Target, advice, judge_addresses, judge_url

#: Everything a list may open at all, so that only what no list opens is left.
WIDEST = tuple(line.network for line in RANGES if line.may_open)

R = EgressRule
FORBIDDEN = {
    # Plain addresses of every range.
    "http://127.0.0.1/": R.LOOPBACK,
    "http://127.255.255.254:8080/x": R.LOOPBACK,
    "http://[::1]/": R.LOOPBACK,
    "http://[0:0:0:0:0:0:0:1]/": R.LOOPBACK,
    "http://0.0.0.0/": R.UNSPECIFIED,
    "http://0.1.2.3/": R.UNSPECIFIED,
    "http://[::]/": R.UNSPECIFIED,
    "http://10.0.0.1/": R.PRIVATE,
    "http://172.16.0.1/": R.PRIVATE,
    "http://172.31.255.255/": R.PRIVATE,
    "http://192.168.1.1/": R.PRIVATE,
    "http://[fc00::1]/": R.PRIVATE,
    "http://[fdff:ffff::1]/": R.PRIVATE,
    "http://[fec0::1]/": R.PRIVATE,
    "http://100.64.0.1/": R.SHARED,
    "http://100.127.255.254/": R.SHARED,
    "http://169.254.1.1/": R.LINK_LOCAL,
    "http://[fe80::1]/": R.LINK_LOCAL,
    "http://224.0.0.1/": R.MULTICAST,
    "http://239.255.255.250/": R.MULTICAST,
    "http://255.255.255.255/": R.MULTICAST,
    "http://[ff02::1]/": R.MULTICAST,
    "http://192.0.0.8/": R.RESERVED,
    "http://192.0.2.1/": R.RESERVED,
    "http://198.18.0.1/": R.RESERVED,
    "http://198.51.100.7/": R.RESERVED,
    "http://203.0.113.7/": R.RESERVED,
    "http://240.0.0.1/": R.RESERVED,
    "http://[2001:db8::1]/": R.RESERVED,
    "http://[100::1]/": R.RESERVED,
    "http://[4000::1]/": R.RESERVED,  # no global unicast address
    # Metadata services, by address and by name.
    "http://169.254.169.254/latest/meta-data/": R.METADATA,
    "http://169.254.170.2/": R.METADATA,
    "http://100.100.100.200/": R.METADATA,
    "http://168.63.129.16/": R.METADATA,
    "http://192.0.0.192/": R.METADATA,
    "http://[fd00:ec2::254]/": R.METADATA,
    "http://[fd20:ce::254]/": R.METADATA,
    "http://metadata.google.internal/computeMetadata/v1/": R.METADATA,
    "http://METADATA.Google.Internal/": R.METADATA,
    "http://instance-data/": R.METADATA,
    # Names of this machine.
    "http://localhost:9/": R.LOOPBACK,
    "http://LOCALHOST/": R.LOOPBACK,
    "http://api.localhost/": R.LOOPBACK,
    "http://ip6-loopback/": R.LOOPBACK,
    # Addresses inside addresses.
    "http://[::ffff:127.0.0.1]/": R.EMBEDDED,
    "http://[::ffff:7f00:1]/": R.EMBEDDED,
    "http://[::FFFF:8.8.8.8]/": R.EMBEDDED,  # a public one as well: write it as what it is
    "http://[::127.0.0.1]/": R.EMBEDDED,
    "http://[2002:7f00:1::]/": R.EMBEDDED,  # 6to4
    "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]/": R.EMBEDDED,  # Teredo
    "http://[64:ff9b::10.0.0.1]/": R.EMBEDDED,  # NAT64
    "http://[64:ff9b:1::a00:1]/": R.EMBEDDED,
    "http://[2600::5efe:10.0.0.1]/": R.EMBEDDED,  # ISATAP
    "http://[2600::200:5efe:a00:1]/": R.EMBEDDED,
    # Spellings that mean 127.0.0.1, or something else, depending on who reads.
    "http://2130706433/": R.SPELLING,
    "http://017700000001/": R.SPELLING,
    "http://0x7f000001/": R.SPELLING,
    "http://0x7f.0.0.1/": R.SPELLING,
    "http://0177.0.0.1/": R.SPELLING,
    "http://127.1/": R.SPELLING,
    "http://127.0.1/": R.SPELLING,
    "http://127.0.0.01/": R.SPELLING,
    "http://127.0.0.1./": R.SPELLING,
    "http://localhost./": R.SPELLING,
    "http://a.b.c.0x/": R.SPELLING,
    "http://127.0.0.1.0/": R.SPELLING,
    "http://256.0.0.1/": R.SPELLING,
    "http://①②⑦.0.0.1/": R.SPELLING,
    "http://\uff11\uff12\uff17.0.0.1/": R.SPELLING,
    "http://127。0。0。1/": R.SPELLING,
    "http://ⓛocalhost/": R.SPELLING,
    "http://%31%32%37.0.0.1/": R.SPELLING,
    "http://127.0.0.1%00.example/": R.SPELLING,
    "http://[fe80::1%25eth0]/": R.SPELLING,
    "http://[127.0.0.1]/": R.SPELLING,
    "http://[::1/": R.SPELLING,
    "http://[v1.x]/": R.SPELLING,
    "http://user@127.0.0.1/": R.SPELLING,
    "http://crm.example@127.0.0.1/": R.SPELLING,
    "http://crm.example\\@127.0.0.1/": R.SPELLING,
    "http:\\\\127.0.0.1\\": R.SPELLING,
    "http:/127.0.0.1/": R.SPELLING,
    "http:127.0.0.1": R.SPELLING,
    "http:///127.0.0.1": R.SPELLING,
    "http://127.0.0.1\t/": R.SPELLING,
    "http://127.0.\n0.1/": R.SPELLING,
    " http://127.0.0.1/": R.SPELLING,
    "http://crm..example/": R.SPELLING,
    "http://-crm.example/": R.SPELLING,
    "http://crm.example:0/": R.SPELLING,
    "http://crm.example:65536/": R.SPELLING,
    "http://crm.example:/": R.SPELLING,
    "file://127.0.0.1/": R.SPELLING,
    "gopher://127.0.0.1/": R.SPELLING,
    "http://": R.SPELLING,
    "": R.SPELLING,
}
PUBLIC = (
    "https://crm.example/commands?a=b",
    "HTTPS://CRM.Example/",
    "http://xn--bcher-kva.example:8443/",
    "http://a_b.example/",
    "http://crm/",  # what its name leads to is judged when it is looked up
    "http://10.example/",
    "http://0x7f.example/",
    "http://8.8.8.8/",
    "http://172.15.255.255/",
    "http://172.32.0.0/",
    "http://100.63.255.255/",
    "http://100.128.0.0/",
    "http://169.253.0.1/",
    "http://223.255.255.255/",
    "http://[2600::1]:443/x",
    "http://[2A00:1450:4001::200e]/",
)


@pytest.mark.parametrize(("url", "rule"), FORBIDDEN.items())
def test_a_forbidden_form_is_refused_by_its_rule_and_the_message_quotes_no_path(url: str, rule: EgressRule) -> None:
    judged = judge_url(url)

    assert isinstance(judged, Refused)
    assert judged.rule is rule
    assert "/" not in judged.where
    assert advice(rule)


@pytest.mark.parametrize("url", PUBLIC)
def test_a_public_address_or_a_plain_name_is_a_target(url: str) -> None:
    assert isinstance(judge_url(url), Target)


def test_a_name_is_read_in_lower_case_and_an_address_as_one() -> None:
    assert judge_url("http://CRM.Example:80/") == Target(host="crm.example", address=None)
    assert judge_url("http://[2600::A]/") == Target(host="2600::a", address=ipaddress.ip_address("2600::a"))


@pytest.mark.parametrize(
    ("url", "networks"),
    [
        ("http://127.0.0.1:8000/", ("127.0.0.1/32",)),
        ("http://localhost:8000/", ("127.0.0.0/8",)),
        ("http://[::1]/", ("::1",)),
        ("http://10.1.2.3/", ("192.168.0.0/24", "10.1.0.0/16")),
        ("http://[fd12:3456::1]/", ("fd12:3456::/48",)),
        ("http://100.64.0.1/", ("100.64.0.0/10",)),
        ("http://169.254.1.1/", ("169.254.0.0/16",)),
        ("http://240.1.1.1/", ("240.0.0.0/4",)),
        ("http://[64:ff9b::8.8.8.8]/", ("64:ff9b::/96",)),
    ],
)
def test_a_tenants_list_opens_its_networks_and_no_others(url: str, networks: tuple[str, ...]) -> None:
    allowed = tuple(read_network(text) for text in networks)

    assert isinstance(judge_url(url, allowed), Target)
    assert isinstance(judge_url("http://192.168.255.1/", allowed), Refused)
    assert isinstance(judge_url("http://10.9.9.9/", allowed), Refused)


@pytest.mark.parametrize("url", [url for url, rule in FORBIDDEN.items() if rule in {R.METADATA, R.MULTICAST, R.UNSPECIFIED, R.SPELLING}])  # fmt: skip
def test_no_list_opens_a_metadata_service_a_multicast_group_or_a_strange_spelling(url: str) -> None:
    assert isinstance(judge_url(url, WIDEST), Refused)


def test_an_address_behind_nat64_is_judged_by_the_address_inside() -> None:
    allowed = (read_network("64:ff9b::/96"),)

    assert judge_url("http://[64:ff9b::127.0.0.1]/", allowed) == Refused(rule=R.LOOPBACK, where="[64:ff9b::127.0.0.1]")
    assert isinstance(judge_url("http://[64:ff9b::169.254.169.254]/", WIDEST), Refused)


def test_one_forbidden_answer_refuses_a_name() -> None:
    assert judge_addresses(["8.8.8.8", "2600::1"]) is None
    assert judge_addresses(["8.8.8.8", "10.0.0.5"]) == Refused(rule=R.PRIVATE, where="10.0.0.5")
    assert judge_addresses(["fe80::1%eth0"], WIDEST) == Refused(rule=R.LINK_LOCAL, where="fe80::1%eth0")
    assert judge_addresses(["what is this"]) == Refused(rule=R.SPELLING, where="what is this")


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_nothing_is_connected_to_that_python_does_not_call_global(address: ipaddress.IPv4Address) -> None:
    assert refusal(address) is not None or address.is_global


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("127.0.0.1", True),
        ("10.0.0.0/8", True),
        ("fd12::/48", True),
        ("64:ff9b::/96", True),
        ("0.0.0.0/0", False),  # the whole internet
        ("::/0", False),
        ("8.8.8.0/24", False),  # open already
        ("172.0.0.0/8", False),  # more than the private part
        ("169.254.169.254", False),  # in a range that may be opened, and yet
        ("224.0.0.0/4", False),
        ("::ffff:127.0.0.0/104", False),
    ],
)
def test_a_list_holds_only_what_is_refused_and_may_be_opened(text: str, accepted: bool) -> None:
    assert opens(read_network(text)) is accepted


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "10/8", "crm.example", "fe80::%eth0/64", ""])
def test_what_is_no_network_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_network(text)
