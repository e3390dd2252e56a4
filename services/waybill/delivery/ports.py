"""What the worker needs from others: the applied configuration, the keys it signs with, its clients."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from waybill.contracts.fabric import DestinationConfig, FabricConfig
from waybill.crypto.signing import Signer
from waybill.egress.client import GuardedClient
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka import GroupReader, TransactionalProducer
from waybill.infra.strand import Strand, ThreadStrand
from waybill.infra.topic_reader import TopicReader
from waybill.kernel.ids import Tenant

__all__ = ["Clients", "ConfigSource", "SignerSource", "Standing"]


class ConfigSource(Protocol):
    """The newest applied configuration; asked several times a second, answers from memory."""

    def current(self) -> FabricConfig:
        """Return it; version 0 before the first apply."""
        ...


class Standing(Protocol):
    """What the topics say of deliveries, as somebody folded them."""

    async def acknowledged(
        self, tenant: Tenant, partition: int, end: int, delivery_ids: Collection[str]
    ) -> Collection[str] | None:
        """Return those that are acknowledged; None while the partition's states below `end` are not folded yet.

        Raises:
            TransientError: not now.
        """
        ...


class SignerSource(Protocol):
    """Signers by destination."""

    def signer(self, destination: DestinationConfig) -> Signer:
        """Return the signer for a destination, read anew.

        Raises:
            ConfigError: no usable key or secret; says what to do.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """How a worker's clients are made, and the threads they block: called as the classes are. Simulators make others."""

    reader: Callable[..., GroupReader] = GroupReader
    producer: Callable[..., TransactionalProducer] = TransactionalProducer
    http: Callable[..., GuardedClient] = GuardedClient
    #: Of decisions and results.
    topics: Callable[..., TopicReader] = TopicReader
    #: Of the groups of listeners.
    offsets: Callable[[str], GroupOffsets] = GroupOffsets
    #: Takes the name of the thread.
    strand: Callable[[str], Strand[Any]] = ThreadStrand
