"""What a destination refers to is read, checked and named when it cannot be used; what it holds is never told."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from fixtures.certificates import Authority

from waybill.contracts.fabric import (
    DestinationConfig,
    FabricConfig,
    HeaderConfig,
    SecretRef,
    StatusSource,
    TenantConfig,
    TlsConfig,
)
from waybill.delivery.sender import outbound_of
from waybill.egress.core.headers import is_value, refused_name, sounds_secret
from waybill.egress.outbound import Outbound, read_way
from waybill.infra.http_client import HttpClient, HttpLimits, Way
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName, Tenant

LIMITS = HttpLimits(connect_s=1.0, read_s=2.0, total_s=3.0, connections=1)
OURS = Authority("ours")
CLIENT, OTHER = OURS.sign("waybill"), OURS.sign("other")
ENCRYPTED = CLIENT.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")).decode()


def outbound(folder: Path, **texts: str) -> Outbound:
    """A destination that refers to files with these texts."""

    def refer(name: str) -> SecretRef | None:
        if name not in texts:
            return None
        (folder / name).write_text(texts[name])
        return SecretRef(file=str(folder / name))

    tls: dict[str, Any] = {name: refer(name) for name in ("authorities", "certificate", "key")}
    header = refer("header")
    headers = (HeaderConfig(name="x-api-key", secret=header),) if header else ()
    return Outbound(
        destination="acme/crm", urls=("https://crm.example/",), limits=LIMITS, tls=TlsConfig(**tls), headers=headers
    )


def test_what_is_referred_to_is_read_and_never_shown(tmp_path: Path) -> None:
    way = read_way(
        outbound(
            tmp_path, authorities=OURS.pem, certificate=CLIENT.pem + OURS.pem, key=CLIENT.key_pem, header="geheim\n"
        )
    )

    assert CLIENT.key_pem.strip() in way.identity
    assert way.headers == (("x-api-key", "geheim"),)
    assert repr(way) == "Way(pin=None)"
    HttpClient(LIMITS, way)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"authorities": "nothing of the kind"}, "tls.authorities of destination acme/crm: expected PEM certificates"),
        ({"authorities": OURS.pem[:200]}, "tls.authorities of destination acme/crm: expected PEM certificates"),
        ({"certificate": CLIENT.key_pem, "key": CLIENT.key_pem}, "tls.certificate of destination acme/crm: expected"),
        ({"certificate": CLIENT.pem, "key": CLIENT.pem}, "tls.key of destination acme/crm: expected one PEM private"),
        ({"certificate": CLIENT.pem, "key": ENCRYPTED}, "tls.key of destination acme/crm: expected one PEM private"),
        ({"certificate": CLIENT.pem, "key": OTHER.key_pem}, "expected the key of tls.certificate"),
        ({"header": "geheim\nzweimal"}, "header x-api-key of destination acme/crm: expected one line"),
        ({"header": "geheim\x00"}, "header x-api-key of destination acme/crm: expected one line"),
        ({"header": ""}, "header x-api-key of destination acme/crm: the file"),
    ],
)
def test_what_cannot_be_used_is_named_and_not_told(tmp_path: Path, texts: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_way(outbound(tmp_path, **texts))

    assert said in str(caught.value)
    assert not any(line and line in str(caught.value) for text in texts.values() for line in text.splitlines())


@pytest.mark.parametrize("way", [Way(authorities="nothing"), Way(identity="nothing"), Way(identity=CLIENT.pem)])
def test_a_client_is_not_made_from_what_the_library_would_pass_over(way: Way) -> None:
    with pytest.raises(ConfigError, match="PEM"):
        HttpClient(LIMITS, way)


def test_no_code_turns_verification_off(checkout: Path) -> None:
    sources = [file.read_text() for file in (checkout / "services").rglob("*.py")]

    assert not any("danger" + "_accept" in text or "CERT" + "_NONE" in text for text in sources)


def test_only_guarded_connections_make_the_client_that_delivers(checkout: Path) -> None:
    services = checkout / "services" / "waybill"
    made = {
        str(file.relative_to(services))
        for file in services.rglob("*.py")
        if re.search(r"\b(HttpClient|ClientBuilder)\(", file.read_text())
    }

    # The bench posts to its own listeners and its own submission API only.
    assert made == {
        "infra/http_client.py",
        "egress/connections.py",
        "bench/deliver.py",
        "bench/listener.py",
        "bench/submit.py",
    }


def test_a_client_is_made_anew_only_when_what_it_is_made_from_changes() -> None:
    acme = Tenant("acme")
    crm = DestinationConfig(
        tenant=acme,
        name=DestinationName("crm"),
        url="https://crm.example/",
        owner="o",
        status_query=StatusSource(url="https://crm.example/asked", settle_after_s=600.0),
    )

    def made(destination: DestinationConfig = crm, *networks: str) -> Outbound:
        tenant = TenantConfig(name=acme, allow_networks=networks, destinations=(destination,))
        return outbound_of(destination, FabricConfig(version=1, tenants=(tenant,)))

    assert made().urls == ("https://crm.example/", "https://crm.example/asked")
    assert made(replace(crm, owner="another")) == made()
    for other in (
        made(crm, "10.0.0.0/8"),
        made(replace(crm, url="https://crm.example/b")),
        made(replace(crm, status_query=None)),
        made(replace(crm, headers=(HeaderConfig(name="x-a", value="b"),))),
        made(replace(crm, tls=TlsConfig(authorities=SecretRef(file="ca.pem")))),
        made(replace(crm, concurrency=7)),
    ):
        assert other != made()


@pytest.mark.parametrize(
    "name",
    [
        "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive",
        "upgrade", "te", "trailer", "proxy-authorization", "expect", "http2-settings", "webhook-id",
        "webhook-signature", "webhook-anything", "waybill-tenant", "ce-id", "traceparent", "tracestate", "user-agent",
        "accept-encoding", "cookie", "forwarded", "x-forwarded-for", "via", "idempotency-key", "if-match", "range",
        "x-http-method-override", "sec-fetch-mode", "date",
        "X-Tenant", "x tenant", "x-tenant:", "x-ä", ":authority", "-x", "", "x" * 65, "a\r\nb",
    ],
)  # fmt: skip
def test_a_name_that_is_not_the_destinations_is_refused(name: str) -> None:
    assert refused_name(name) is not None


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-tenant", "x_region", "api-version"])
def test_any_other_name_may_be_declared(name: str) -> None:
    assert refused_name(name) is None


def test_a_name_that_sounds_like_a_credential_takes_no_plain_value() -> None:
    loud = {"authorization", "x-api-key", "x-auth", "x-session", "client-secret", "x-token", "x-signature"}

    assert {name for name in (*loud, "x-tenant", "x-region", "api-version") if sounds_secret(name)} == loud


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("acme", True),
        ("Bearer a b", True),
        ("x" * 4096, True),
        ("x" * 4097, False),
        ("", False),
        (" x", False),
        ("x ", False),
        ("a\tb", False),
        ("a\r\nb: c", False),
        ("ä", False),
    ],
)
def test_a_value_is_one_line_of_printable_ascii(text: str, accepted: bool) -> None:
    assert is_value(text) is accepted
