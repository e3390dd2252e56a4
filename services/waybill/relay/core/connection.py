"""One outbox as the relay knows it, and every name that follows from it.

Names are derived here and nowhere else: connector, topic prefix, slot, publication, tables and the topics Debezium
keeps for itself. They are injective in the outbox's name, so two outboxes on one server never share a slot.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from waybill.kernel.errors import ConfigError

__all__ = ["OutboxConnection", "OutboxKind", "heartbeat_topic", "variables"]

#: Names of outboxes; slot names allow 63 characters.
_NAME: Final = re.compile(r"^[a-z][a-z0-9-]{0,49}$")
_SCHEMA: Final = re.compile(r"^[a-z_][a-z0-9_]{0,39}$")


class OutboxKind(StrEnum):
    """Which table a connector relays; its value is the file under `connect/`."""

    #: A producer's commands.
    OUTBOX = "outbox"
    #: The control database's configuration objects.
    CONTROL = "control"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxConnection:
    """One outbox as Kafka Connect reaches it. Holds no secret, only where Connect finds it."""

    #: Unique among all outboxes of a Connect cluster, such as `acme-orders`; the connector is `waybill-<name>`.
    name: str
    host: str
    port: int
    database: str
    user: str
    #: Properties file Connect's `file` provider may read, and the key of the password in it.
    secret_file: str
    secret_key: str
    schema: str = "waybill"
    kind: OutboxKind = OutboxKind.OUTBOX
    sslmode: str = "prefer"
    #: Path of the certificate authority on Connect's machine.
    sslrootcert: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ConfigError(f"outbox name {self.name!r}: expected {_NAME.pattern}")
        if not _SCHEMA.match(self.schema):
            raise ConfigError(f"schema {self.schema!r} of outbox {self.name}: expected {_SCHEMA.pattern}")

    @property
    def connector(self) -> str:
        """Name of the connector, also Debezium's topic prefix."""
        return f"waybill-{self.name}"

    @property
    def slot(self) -> str:
        """Name of the replication slot."""
        return f"waybill_{self.name.replace('-', '_')}"

    @property
    def table_name(self) -> str:
        """Name of the outbox table within its schema."""
        return "outbox" if self.kind is OutboxKind.OUTBOX else "control_outbox"

    @property
    def table(self) -> str:
        """The outbox table with its schema."""
        return f"{self.schema}.{self.table_name}"

    @property
    def publication(self) -> str:
        """Name of the publication the outbox's migration made."""
        return f"{self.schema}_{self.table_name}"


def heartbeat_topic(prefix: str) -> str:
    """Return the topic Debezium's heartbeats go to."""
    return f"__debezium-heartbeat.{prefix}"


def variables(connection: OutboxConnection) -> Mapping[str, str | None]:
    """Return the value of every placeholder a connector file may name."""
    return {
        "name": connection.connector,
        "host": connection.host,
        "port": str(connection.port),
        "database": connection.database,
        "user": connection.user,
        "secret_file": connection.secret_file,
        "secret_key": connection.secret_key,
        "sslmode": connection.sslmode,
        "sslrootcert": connection.sslrootcert,
        "schema": connection.schema,
        "slot": connection.slot,
    }
