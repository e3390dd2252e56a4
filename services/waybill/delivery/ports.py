"""What the worker needs from others: the applied configuration and the keys it signs with."""

from typing import Protocol

from waybill.contracts.fabric import DestinationConfig, FabricConfig
from waybill.crypto.signing import Signer

__all__ = ["ConfigSource", "SignerSource"]


class ConfigSource(Protocol):
    """The newest applied configuration; asked several times a second, answers from memory."""

    def current(self) -> FabricConfig:
        """Return it; version 0 before the first apply."""
        ...


class SignerSource(Protocol):
    """Signers by destination."""

    def signer(self, destination: DestinationConfig) -> Signer:
        """Return the signer for a destination, read anew.

        Raises:
            ConfigError: no usable key or secret; says what to do.
        """
        ...
