"""The `containers` back end: the same services and files, each in a container on the host's network.

Never run: no container engine was at hand where this was written. What a test asserts is the definitions below,
as data: images (`apache/kafka:4.4.0`, `apicurio/apicurio-registry:3.3.3`, `postgres:18.6`), commands, mounts and
labels. Try it on a machine with an engine before relying on it.

Host networking (Linux engines) keeps ports, addresses and configuration files what they are for processes: every
file is mounted at its own path. Containers are named and labelled by the stack's folder, and the engine's clean-up
of test containers is switched off, for a stack outlives its launcher. PostgreSQL's log is the engine's
(`docker logs`); the others write to the stack's `logs` folder.
"""

import hashlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from waybill.devstack import artifacts, health, plan, postgres
from waybill.devstack.ports import local_stack
from waybill.devstack.settings import log_file, write_settings
from waybill.devstack.stack import Stack, Wanted
from waybill.kernel.errors import UnavailableError

__all__ = ["ContainerSpec", "ContainersBackend", "container_specs"]

KAFKA_IMAGE: Final = "apache/kafka:4.4.0"
REGISTRY_IMAGE: Final = "apicurio/apicurio-registry:3.3.3"
POSTGRES_IMAGE: Final = "postgres:18.6"
KAFKA_HOME: Final = "/opt/kafka/bin"
LABEL: Final = "waybill.stack"
READY_WITHIN_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container, as data."""

    service: str
    name: str
    image: str
    command: tuple[str, ...]
    environ: dict[str, str]
    #: Paths mounted at the same path, with `rw` or `ro`.
    mounts: dict[str, str]
    #: `uid:gid`, or None for what the image says.
    user: str | None
    label: str


def container_specs(stack: Stack, plugin_path: Path, user: str) -> tuple[ContainerSpec, ...]:
    """Return the container of each service, in starting order."""
    brokers = [_broker(stack, node, user) for node in range(1, stack.brokers + 1)]
    return (_database(stack), *brokers, _connect(stack, plugin_path, user), _registry(stack, user))


def _name(stack: Stack, service: str) -> str:
    return f"waybill-{hashlib.sha256(str(stack.folder).encode()).hexdigest()[:10]}-{service}"


def _spec(stack: Stack, service: str, image: str, command: tuple[str, ...], **other: Any) -> ContainerSpec:
    label = plan.marker(stack.folder, service).partition("=")[2]
    return ContainerSpec(
        service=service, name=_name(stack, service), image=image, command=command, label=label, **other
    )


def _database(stack: Stack) -> ContainerSpec:
    home = stack.folder / "postgres"
    options = plan.postgres_command(stack, Path("/"), home / "data")[3:]
    # the image makes its cluster through its socket, which our own command line switches off
    kept = tuple(text for flag, text in zip(options[::2], options[1::2], strict=True) if flag == "-c")
    settings = [text for text in kept if not text.startswith("unix_socket_directories=")]
    return _spec(
        stack,
        "postgres",
        POSTGRES_IMAGE,
        ("postgres", *(part for text in settings for part in ("-c", text))),
        environ={
            "PGDATA": str(home / "data"),
            "POSTGRES_PASSWORD": stack.passwords["postgres"],
            "POSTGRES_HOST_AUTH_METHOD": "scram-sha-256",
            "POSTGRES_INITDB_ARGS": "--auth=scram-sha-256 --locale-provider=builtin --builtin-locale=C.UTF-8",
        },
        mounts={str(home): "rw"},
        user=None,
    )


def _broker(stack: Stack, node: int, user: str) -> ContainerSpec:
    service = f"kafka-{node}"
    work = stack.folder / service
    script = (
        f'[ -f "{work}/data/meta.properties" ] || '
        f'{KAFKA_HOME}/kafka-storage.sh format -t {stack.cluster_id} -c "{work}/server.properties" && '
        f'exec {KAFKA_HOME}/kafka-server-start.sh "{work}/server.properties"'
    )
    return _java(stack, service, ("sh", "-c", script), user, {})


def _connect(stack: Stack, plugin_path: Path, user: str) -> ContainerSpec:
    command = (f"{KAFKA_HOME}/connect-distributed.sh", str(stack.folder / "connect" / "connect.properties"))
    mounts = {str(stack.secrets_file.parent): "ro", str(plugin_path): "ro"}
    return _java(stack, "connect", command, user, mounts)


def _java(stack: Stack, service: str, command: tuple[str, ...], user: str, mounts: dict[str, str]) -> ContainerSpec:
    work = stack.folder / service
    kind = service.partition("-")[0]
    return _spec(
        stack,
        service,
        KAFKA_IMAGE,
        command,
        environ={
            "KAFKA_HEAP_OPTS": " ".join(plan.HEAPS[kind]),
            "KAFKA_LOG4J_OPTS": f"-Dlog4j2.configurationFile={work / 'log4j2.properties'}",
            "LOG_DIR": str(work / "tmp"),
        },
        mounts={str(work): "rw", str(stack.folder / "logs"): "rw", **mounts},
        user=user,
    )


def _registry(stack: Stack, user: str) -> ContainerSpec:
    work = stack.folder / "registry"
    return _spec(
        stack,
        "registry",
        REGISTRY_IMAGE,
        (),
        environ={
            "QUARKUS_CONFIG_LOCATIONS": str(work / "config" / "application.properties"),
            "QUARKUS_LOG_FILE_ENABLE": "true",
            "QUARKUS_LOG_FILE_PATH": str(log_file(stack, "registry")),
        },
        mounts={str(work): "ro", str(stack.folder / "logs"): "rw"},
        user=user,
    )


class ContainersBackend:
    """Starts, finds and ends the containers of the stack in one folder."""

    def __init__(self, folder: Path, progress: Callable[[str], None]) -> None:
        self._folder = folder
        self._progress = progress

    def prepare(self, asked: Wanted, former: Stack | None) -> Stack:
        """Choose ports as for processes: containers listen on the host's network."""
        return local_stack(self._folder, asked, former, frozenset(self._running()))

    def start(self, stack: Stack, services: Sequence[str]) -> None:
        """Start the containers that do not run, database and brokers first.

        Raises:
            UnavailableError: no engine answers, or a service is not ready in time.
        """
        lock = [entry for entry in artifacts.read_lock() if entry.place == "debezium"]
        cache = self._folder.parent.parent / "cache"
        plugins = artifacts.provide_sets(cache, lock, artifacts.fetch_from_repository, self._progress)["debezium"]
        running = self._running()
        user = f"{os.getuid()}:{os.getgid()}"
        (stack.folder / "logs").mkdir(exist_ok=True)
        for spec in container_specs(stack, plugins, user):
            if spec.service not in services:
                continue
            if spec.service not in running:
                (stack.folder / spec.service).mkdir(exist_ok=True)
                if spec.service != "postgres":
                    write_settings(stack, plugins, spec.service)
                _run(spec)
            if not spec.service.startswith("kafka"):  # a broker is ready with the last of them
                self._wait(stack, spec.service)
            if spec.service == "postgres":
                postgres.prepare_roles(stack)

    def _wait(self, stack: Stack, service: str) -> None:
        began = time.monotonic()
        while not health.is_ready(stack, service):
            if time.monotonic() - began > READY_WITHIN_S:
                raise UnavailableError(f"{service} is not ready: `docker logs {_name(stack, service)}`")
            threading.Event().wait(0.3)
        self._progress(f"{service} is ready after {time.monotonic() - began:.1f} s")

    def status(self, stack: Stack) -> list[dict[str, object]]:
        """Return one record per service."""
        running = self._running()
        return [
            {
                "service": service,
                "state": "stopped"
                if service not in running
                else ("up" if health.is_ready(stack, service) else "starting"),
                "pid": None,
                "address": f"{plan.HOST}:{stack.ports[service]}",
                "log": str(log_file(stack, service)),
            }
            for service in plan.service_names(stack.brokers)
        ]

    def stop(self, stack: Stack | None) -> list[str]:
        """Stop and remove the stack's containers, Connect and the registry first."""
        running = self._running()
        order = sorted(running, key=lambda service: service.startswith(("kafka", "postgres")))
        for service in order:
            self._progress(f"stopping {service}")
            running[service].stop(timeout=20)
            running[service].remove()
        return order

    def forget(self) -> None:
        """Nothing is kept outside the folder."""

    def _running(self) -> dict[str, Any]:
        """Return the stack's containers by service."""
        found: dict[str, Any] = {}
        for service in plan.service_names(3):
            label = plan.marker(self._folder, service)
            for container in _engine().containers.list(filters={"label": label}):
                found[service] = container
        return found


def _engine() -> Any:
    """Return the engine's client.

    Raises:
        UnavailableError: the package is not installed, or no engine answers.
    """
    try:
        refusal: type[Exception] = importlib.import_module("docker.errors").DockerException
        from testcontainers.core.docker_client import DockerClient
    except ModuleNotFoundError as error:
        raise UnavailableError("the containers back end needs pip install 'waybill[containers]'") from error
    try:
        return DockerClient().client
    except refusal as error:
        raise UnavailableError("no container engine answers: start one, or use `--stack process`") from error


def _run(spec: ContainerSpec) -> None:
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    testcontainers_config.ryuk_disabled = True
    container = DockerContainer(spec.image).with_name(spec.name).with_envs(**spec.environ)
    if spec.command:
        container = container.with_command(list(spec.command))
    for path, mode in spec.mounts.items():
        container = container.with_volume_mapping(path, path, mode)
    options: dict[str, Any] = {"network_mode": "host", "labels": {LABEL: spec.label}}
    if spec.user is not None:
        options["user"] = spec.user
    container.with_kwargs(**options).start()
