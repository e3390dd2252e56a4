"""`up`, `down`, `reset`, `status` for a stack by name: locks, state file and messages around one back end.

One launcher at a time works on a name (an advisory lock in its folder); a second one waits and then finds the
work done. State is written before anything is started, so an `up` that was interrupted is simply repeated.
"""

import os
import secrets
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from waybill.devstack import artifacts, postgres
from waybill.devstack.backends.process import ProcessBackend
from waybill.devstack.plan import (
    HOST,
    LOGIN_ROLES,
    choose_ports,
    port_names,
    properties_text,
    service_names,
    unusable_character,
)
from waybill.devstack.ports import free_ports
from waybill.devstack.stack import STATE_NAME, Stack, read_state, write_private, write_state
from waybill.infra.addresses import environment, stack_folder
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["Wanted", "down", "load", "log_files", "names", "put_secret", "reset", "status", "up", "variables"]

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Drop progress lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What `up` was asked for; what is not said is kept from the last time."""

    name: str | None = None
    brokers: int | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    #: Start these only; None is all. The others can be started later under the same name.
    services: tuple[str, ...] | None = None


def _folder(name: str | None) -> Path:
    folder = stack_folder(environment(), Path.cwd(), name).absolute()
    if not folder.name or not folder.name.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"a stack's name is letters, digits, - and _: got {folder.name!r}")
    if (character := unusable_character(folder)) is not None:
        raise ConfigError(
            f"{folder} has {character!r} in its path, which Java or Kafka would misread: set WAYBILL_HOME to another folder"
        )
    return folder


def up(wanted: Wanted | None = None, progress: Progress = silent) -> Stack:
    """Start what is not running and return the stack when every service does its work. Idempotent.

    Raises:
        ConfigError: what was asked contradicts what runs.
        UnavailableError: something this machine lacks, or a service that did not start; says what to do.
    """
    asked = wanted or Wanted()
    folder = _folder(asked.name)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)  # root's PostgreSQL runs as another user below it
    artifacts.check_space(folder, artifacts.START_BYTES, "a local stack")
    with artifacts.file_lock(
        folder / ".lock", lambda: progress(f"waiting for another command on stack {folder.name!r}")
    ):
        former = read_state(folder)
        backend = ProcessBackend(folder, progress)
        running = backend.running(former)
        stack = _planned(folder, asked, former, frozenset(running))
        if former is not None and stack.ports != former.ports and running:
            progress("some ports changed because others took them meanwhile: apply the fabric again")
        write_state(stack)
        _write_secrets(stack)
        stack.keys_dir.mkdir(mode=0o700, exist_ok=True)
        backend.start(stack, asked.services or service_names(stack.brokers))
    return stack


def _planned(folder: Path, asked: Wanted, former: Stack | None, running: frozenset[str]) -> Stack:
    brokers = asked.brokers or (former.brokers if former else 1)
    if brokers not in (1, 3):
        raise ConfigError(f"a stack has 1 or 3 brokers, not {brokers}")
    if former is not None and former.brokers != brokers:
        raise ConfigError(
            f"stack {folder.name!r} has {former.brokers} broker(s): `waybill dev reset --name {folder.name}` first, "
            "or choose another name"
        )
    kept = former.ports if former else {}
    held = {kept[name] for name in kept if _service_of(name) in running}
    is_free, candidates = free_ports(folder.parent, folder)
    ports = choose_ports(
        port_names(brokers),
        asked=asked.ports,
        former=kept,
        candidates=candidates,
        is_free=lambda port: port in held or is_free(port),
    )
    passwords = dict(former.passwords) if former else {}
    for role in ("postgres", *LOGIN_ROLES):
        passwords.setdefault(role, secrets.token_hex(16))
    return Stack(
        name=folder.name,
        backend="process",
        folder=folder,
        brokers=brokers,
        kafka=",".join(f"{HOST}:{ports[f'kafka-{node}']}" for node in range(1, brokers + 1)),
        connect_url=f"http://{HOST}:{ports['connect']}",
        registry_url=f"http://{HOST}:{ports['registry']}/apis/ccompat/v7",
        postgres_host=HOST,
        postgres_port=ports["postgres"],
        ports=ports,
        cluster_id=former.cluster_id
        if former
        else urlsafe_b64encode(b"w" + secrets.token_bytes(15)).decode().rstrip("="),
        passwords=passwords,
    )


def _service_of(port_name: str) -> str:
    return port_name.removesuffix("-controller").removesuffix("-management")


def _write_secrets(stack: Stack) -> None:
    if not stack.secrets_file.is_file():
        stack.secrets_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(stack.secrets_file, properties_text({"relay.password": stack.passwords["waybill_relay"]}))


def put_secret(stack: Stack, key: str, value: str) -> None:
    """Set one key of the properties file that Connect's `file` provider reads; other keys stay.

    A running connector sees the new value when it is restarted.
    """
    lines = stack.secrets_file.read_text().splitlines(keepends=True) if stack.secrets_file.is_file() else []
    kept = [line for line in lines if line.partition("=")[0] != key]
    write_private(stack.secrets_file, "".join(kept) + properties_text({key: value}))


def load(name: str | None = None) -> Stack:
    """Return a stack by name.

    Raises:
        UnavailableError: it was never up.
    """
    folder = _folder(name)
    stack = read_state(folder)
    if stack is None:
        raise UnavailableError(f"there is no stack {folder.name!r}: `waybill dev up --name {folder.name}`")
    return stack


def names() -> list[str]:
    """Return the names of all stacks of this project that were ever up and not reset."""
    return sorted(state.parent.name for state in _folder("default").parent.glob(f"*/{STATE_NAME}"))


def status(name: str | None = None) -> list[dict[str, object]]:
    """Return one record per service: service, state (`up`, `starting`, `stopped`), pid, address, log."""
    stack = load(name)
    return ProcessBackend(stack.folder, silent).status(stack)


def down(name: str | None = None, progress: Progress = silent) -> list[str]:
    """End the stack's services, and nothing else; data stays. Idempotent. Return the services that were ended."""
    folder = _folder(name)
    if not folder.is_dir():
        return []
    with artifacts.file_lock(
        folder / ".lock", lambda: progress(f"waiting for another command on stack {folder.name!r}")
    ):
        return ProcessBackend(folder, progress).stop(read_state_or_none(folder))


def read_state_or_none(folder: Path) -> Stack | None:
    """Return the recorded stack, or None also when the file is damaged: ending must work regardless."""
    try:
        return read_state(folder)
    except ConfigError:
        return None


def reset(name: str | None = None, progress: Progress = silent) -> None:
    """End the stack and delete its folder with all data; the cache of programs stays. Idempotent."""
    folder = _folder(name)
    down(name, progress)
    postgres.forget(folder)
    shutil.rmtree(folder, ignore_errors=True)


def log_files(stack: Stack, service: str | None = None) -> list[Path]:
    """Return the log of one service, or of all that wrote one.

    Raises:
        ConfigError: the stack has no such service.
    """
    names = service_names(stack.brokers)
    if service is not None and service not in names:
        raise ConfigError(f"no service {service!r}: expected one of {', '.join(names)}")
    paths = [stack.folder / "logs" / f"{name}.log" for name in ([service] if service else names)]
    return [path for path in paths if path.is_file()]


def variables(stack: Stack) -> dict[str, str]:
    """Return the environment variables that point every command at the stack."""
    return {
        "WAYBILL_STACK": stack.name,
        "WAYBILL_KAFKA": stack.kafka,
        "WAYBILL_CONNECT_URL": stack.connect_url,
        "WAYBILL_REGISTRY_URL": stack.registry_url,
        "WAYBILL_CONTROL_DSN": stack.dsn("waybill"),
        "WAYBILL_KEYS_DIR": str(stack.keys_dir),
        "WAYBILL_APP_DSN": stack.dsn("app", "waybill_app"),
        "WAYBILL_APP_ADMIN_DSN": stack.dsn("app"),
    }
