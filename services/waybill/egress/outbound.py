"""What one destination's connections are made from, and the secrets it refers to, read anew when asked.

A certificate that is not its key's, an encrypted key or a file without a certificate is said here, by the name of the
reference, before anything is sent; what a secret holds is in no message.
"""

from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from waybill.contracts.fabric import HeaderConfig, SecretRef, TlsConfig
from waybill.egress.core.headers import is_value
from waybill.infra.http_client import HttpLimits, Way
from waybill.infra.secrets import read_secret
from waybill.kernel.errors import ConfigError

__all__ = ["Outbound", "read_way"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """What the client of one destination is made from."""

    #: For people: `tenant/name`.
    destination: str
    #: Where it takes requests: deliveries, and questions about them.
    urls: tuple[str, ...]
    limits: HttpLimits
    #: Networks that may be connected to beyond public addresses.
    allow_networks: tuple[str, ...] = ()
    tls: TlsConfig | None = None
    headers: tuple[HeaderConfig, ...] = ()

    @property
    def refers(self) -> bool:
        """Whether it names anything that may change without it."""
        return self.tls is not None or any(header.secret for header in self.headers)


def read_way(outbound: Outbound) -> Way:
    """Read everything it refers to; without an address, which is not known here.

    Raises:
        ConfigError: something is missing or cannot be used; names the reference and what to do.
    """
    tls, of = outbound.tls or TlsConfig(), f"of destination {outbound.destination}"
    return Way(
        authorities=_authorities(tls.authorities, of) if tls.authorities else "",
        identity=_identity(tls.certificate, tls.key, of) if tls.certificate and tls.key else "",
        headers=tuple((header.name, _header(header, of)) for header in outbound.headers),
    )


def _authorities(reference: SecretRef, of: str) -> str:
    text = read_secret(reference, f"tls.authorities {of}")
    _certificates(text, f"tls.authorities {of}")
    return text


def _identity(certificate: SecretRef, key: SecretRef, of: str) -> str:
    chain = read_secret(certificate, f"tls.certificate {of}")
    secret = read_secret(key, f"tls.key {of}")
    first = _certificates(chain, f"tls.certificate {of}")[0]
    try:
        loaded = load_pem_private_key(secret.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"tls.key {of}: expected one PEM private key that is not encrypted") from None
    if loaded.public_key() != first.public_key():
        raise ConfigError(f"tls.key {of}: expected the key of tls.certificate, it is another one's")
    return f"{chain}\n{secret}\n"


def _certificates(text: str, what: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise ConfigError(f"{what}: expected PEM certificates") from None


def _header(header: HeaderConfig, of: str) -> str:
    if header.secret is None:
        return header.value or ""
    value = read_secret(header.secret, f"header {header.name} {of}")
    if not is_value(value):
        raise ConfigError(f"header {header.name} {of}: expected one line of printable ASCII, at most 4096 characters")
    return value
