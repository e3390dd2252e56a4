"""The record of one local stack, and its state file.

`stack.json` is the truth about a stack while nothing runs: ports, cluster id and generated passwords are chosen
once and kept, so that data written under them stays readable. It holds secrets and is written with mode 0600, by
rename, so that a killed launcher leaves the old or the new file, never half of one.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from waybill.kernel.errors import ConfigError

__all__ = ["Stack", "Wanted", "from_document", "read_state", "to_document", "write_private", "write_state"]

STATE_NAME: Final = "stack.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Where one local stack is and how to log in to it."""

    name: str
    #: `process`, `containers` or `external`.
    backend: str
    folder: Path
    brokers: int
    #: Bootstrap servers, `host:port` joined by commas.
    kafka: str
    connect_url: str
    #: Confluent-compatible API root.
    registry_url: str
    postgres_host: str
    postgres_port: int
    #: Port by name; empty when the backend does not choose ports.
    ports: Mapping[str, int]
    cluster_id: str
    #: Generated password by role.
    passwords: Mapping[str, str] = field(repr=False)

    @property
    def secrets_file(self) -> Path:
        """The properties file Connect's `file` configuration provider may read, and nothing else."""
        return self.folder / "secrets" / "connect.properties"

    @property
    def keys_dir(self) -> Path:
        """Where signing keys of this stack's tenants live."""
        return self.folder / "keys"

    def dsn(self, database: str, role: str = "postgres") -> str:
        """Return a libpq URI with the role's password.

        Raises:
            ConfigError: the stack knows no password for the role.
        """
        if role not in self.passwords:
            raise ConfigError(f"stack {self.name!r} has no role {role!r}: expected one of {', '.join(self.passwords)}")
        secret = quote(self.passwords[role], safe="")
        return f"postgresql://{quote(role)}:{secret}@{self.postgres_host}:{self.postgres_port}/{quote(database)}"

    def addresses(self) -> dict[str, str]:
        """Return what `waybill.infra.addresses` reads from the state file."""
        return {
            "kafka": self.kafka,
            "connect_url": self.connect_url,
            "registry_url": self.registry_url,
            "control_dsn": self.dsn("waybill"),
            "worker_dsn": self.dsn("waybill", "waybill_worker"),
            "keys_dir": str(self.keys_dir),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What `up` was asked for; what is not said is kept from the last time."""

    name: str | None = None
    #: `process`, `containers` or `external`; the first unless said.
    backend: str | None = None
    brokers: int | None = None
    #: Port by name (`waybill.devstack.plan.port_names`).
    ports: Mapping[str, int] = field(default_factory=dict)
    #: Start these only; None is all. The others can be started later under the same name.
    services: tuple[str, ...] | None = None
    #: `external` only: where things are, by `kafka`, `connect_url`, `registry_url`, `postgres` (host:port) and
    #: `secrets` (a properties file with a password per role).
    addresses: Mapping[str, str] = field(default_factory=dict)


def to_document(stack: Stack) -> dict[str, Any]:
    """Return the state file's content."""
    return {
        "version": 1,
        "name": stack.name,
        "backend": stack.backend,
        "folder": str(stack.folder),
        "brokers": stack.brokers,
        "addresses": stack.addresses(),
        "postgres": {"host": stack.postgres_host, "port": stack.postgres_port},
        "ports": dict(stack.ports),
        "cluster_id": stack.cluster_id,
        "passwords": dict(stack.passwords),
    }


def from_document(document: Mapping[str, Any], folder: Path) -> Stack:
    """Read a state file's content; `folder` is where it was found, so a moved project keeps working."""
    return Stack(
        name=document["name"],
        backend=document["backend"],
        folder=folder,
        brokers=document["brokers"],
        kafka=document["addresses"]["kafka"],
        connect_url=document["addresses"]["connect_url"],
        registry_url=document["addresses"]["registry_url"],
        postgres_host=document["postgres"]["host"],
        postgres_port=document["postgres"]["port"],
        ports=document["ports"],
        cluster_id=document["cluster_id"],
        passwords=document["passwords"],
    )


def read_state(folder: Path) -> Stack | None:
    """Return the stack recorded in `folder`, or None when there never was one.

    Raises:
        ConfigError: the file is damaged.
    """
    path = folder / STATE_NAME
    if not path.is_file():
        return None
    try:
        return from_document(json.loads(path.read_text()), folder)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged: run `waybill dev reset --name {folder.name}`") from error


def write_private(path: Path, text: str) -> None:
    """Write a file only its owner can read, by rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)


def write_state(stack: Stack) -> None:
    """Record the stack."""
    write_private(stack.folder / STATE_NAME, json.dumps(to_document(stack), indent=2) + "\n")
