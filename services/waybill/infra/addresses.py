"""Where the parts of the fabric are: flags beat the environment, the environment beats the local stack.

Variables: `WAYBILL_KAFKA` (bootstrap servers), `WAYBILL_CONNECT_URL`, `WAYBILL_REGISTRY_URL`,
`WAYBILL_CONTROL_DSN`, `WAYBILL_WORKER_DSN` (the same database as the worker logs in, which needs little),
`WAYBILL_KEYS_DIR`; `WAYBILL_STACK` names the local stack whose state file supplies what
is not set (`default`), `WAYBILL_HOME` the folder those live in (`.waybill` here or in the nearest parent).
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["Addresses", "environment", "home_folder", "share_authorities", "stack_folder"]

HOME_NAME: Final = ".waybill"


def environment() -> Mapping[str, str]:
    """Return the process environment; the only place besides this module's callees that touches it."""
    return os.environ


def share_authorities() -> None:
    """Let the HTTP client of the set-up trust what `SSL_CERT_FILE` names, as every other program does. Idempotent.

    That client knows only `REQUESTS_CA_BUNDLE`, which wins where it is set.
    """
    if authorities := os.environ.get("SSL_CERT_FILE"):
        os.environ.setdefault("REQUESTS_CA_BUNDLE", authorities)


def home_folder(environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the one folder Waybill writes into: `WAYBILL_HOME`, else the nearest `.waybill`, else one here."""
    if chosen := environ.get("WAYBILL_HOME"):
        return Path(chosen)
    for folder in (cwd, *cwd.parents):
        if (folder / HOME_NAME).is_dir():
            return folder / HOME_NAME
    return cwd / HOME_NAME


def stack_folder(environ: Mapping[str, str], cwd: Path, name: str | None = None) -> Path:
    """Return the folder of a local stack; its `stack.json` exists while it was ever up."""
    return home_folder(environ, cwd) / "stacks" / (name or environ.get("WAYBILL_STACK", "default"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """What a command needs to reach the fabric. Ask through the methods: they say what to set when it is missing."""

    kafka: str | None = None
    connect_url: str | None = None
    #: Confluent-compatible API root, e.g. `http://127.0.0.1:8081/apis/ccompat/v7`.
    registry_url: str | None = None
    #: libpq URI of the control database, as a role that may make schemas there.
    control_dsn: str | None = None
    #: The same database as the least privileged role that can work.
    worker_dsn: str | None = None
    keys_dir: str | None = None

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> "Addresses":
        """Merge environment and local stack.

        Raises:
            ConfigError: the stack's state file is not readable JSON.
        """
        env = os.environ if environ is None else environ
        state = stack_folder(env, cwd or Path.cwd()) / "stack.json"
        local: Mapping[str, str] = {}
        if state.is_file():
            try:
                local = json.loads(state.read_text())["addresses"]
            except (ValueError, KeyError) as error:
                raise ConfigError(f"{state} is damaged: run `waybill dev reset`") from error
        return cls(
            kafka=env.get("WAYBILL_KAFKA") or local.get("kafka"),
            connect_url=env.get("WAYBILL_CONNECT_URL") or local.get("connect_url"),
            registry_url=env.get("WAYBILL_REGISTRY_URL") or local.get("registry_url"),
            control_dsn=env.get("WAYBILL_CONTROL_DSN") or local.get("control_dsn"),
            worker_dsn=(
                env.get("WAYBILL_WORKER_DSN")
                or env.get("WAYBILL_CONTROL_DSN")  # another database than the local stack's
                or local.get("worker_dsn")
                or local.get("control_dsn")
            ),
            keys_dir=env.get("WAYBILL_KEYS_DIR") or local.get("keys_dir"),
        )

    def need(self, name: str) -> str:
        """Return one address by field name.

        Raises:
            UnavailableError: nothing says where it is; names the variable and the command that would set it.
        """
        value: str | None = getattr(self, name)
        if value is None:
            raise UnavailableError(
                f"no address for {name}: set WAYBILL_{name.upper()}, or start the local stack with `waybill dev up`"
            )
        return value
