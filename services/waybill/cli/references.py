"""Secrets on a command line: only where they are, never what they are."""

from waybill.contracts.fabric import SecretRef
from waybill.infra.secrets import read_secret
from waybill.kernel.errors import ConfigError

__all__ = ["read_reference"]


def read_reference(text: str, option: str) -> str:
    """Read `env:NAME` or `file:PATH` and return what is there.

    Raises:
        ConfigError: it is neither, without showing it: it may be the secret itself; or nothing is there.
    """
    kind, _, where = text.partition(":")
    if kind not in {"env", "file"} or not where:
        raise ConfigError(f"{option}: expected env:NAME or file:PATH, never the secret itself")
    return read_secret(SecretRef(env=where) if kind == "env" else SecretRef(file=where), option)
