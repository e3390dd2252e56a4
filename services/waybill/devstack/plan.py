"""What a local stack consists of, as data: ports, folders, configuration files and command lines.

Nothing here touches the disk, a socket or the clock: the same stack record always gives the same files and the
same argument vectors, which is what lets `up` be repeated after it was interrupted. Every service listens on
127.0.0.1 only. Each command line carries one argument with the marker `waybill.stack=<folder>#<service>`: it is
how `status` and `down` recognise a process as this stack's own, whoever started it; a command line without it
would leave a process nobody ends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waybill.devstack.stack import Stack
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = [
    "DATABASES",
    "LOGIN_ROLES",
    "Installed",
    "broker_properties",
    "choose_ports",
    "connect_properties",
    "format_command",
    "java_command",
    "log_settings",
    "marker",
    "port_names",
    "postgres_command",
    "properties_text",
    "registry_properties",
    "service_names",
    "unusable_character",
]

HOST: Final = "127.0.0.1"
#: Databases made at first start: control, producer, registry storage.
DATABASES: Final = ("waybill", "app", "registry")
#: Login roles made at first start, with the attributes each gets.
LOGIN_ROLES: Final = {
    "waybill_app": "NOREPLICATION",
    "waybill_relay": "REPLICATION",
    "waybill_worker": "NOREPLICATION",
    "waybill_registry": "NOREPLICATION",
}
#: Below Linux's default range for outgoing connections, so that no client socket takes a port while the stack is down.
PORT_RANGE: Final = (20_000, 32_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Where the programs are after the artifacts were verified."""

    java: Path
    #: A class data archive of the runtime, or a path where none is: the JVM then does without.
    java_archive: Path
    kafka_jars: tuple[Path, ...]
    #: The folder that holds one folder per Connect plugin.
    plugin_path: Path
    registry: Path


def service_names(brokers: int) -> tuple[str, ...]:
    """Return the services of a stack, in the order a reader expects them."""
    return ("postgres", *(f"kafka-{node}" for node in range(1, brokers + 1)), "connect", "registry")


def port_names(brokers: int) -> tuple[str, ...]:
    """Return the name of every port a stack listens on; `--port NAME=NUMBER` takes these names."""
    kafka = [name for node in range(1, brokers + 1) for name in (f"kafka-{node}", f"kafka-{node}-controller")]
    return ("postgres", *kafka, "connect", "registry", "registry-management")


def unusable_character(folder: Path) -> str | None:
    """Return the first character of a folder's path that one of the services would misread as a separator."""
    return next((character for character in str(folder) if character in ',:#%$*?"\\\n'), None)


def marker(folder: Path, service: str) -> str:
    """Return the text that marks a process as one service of the stack in `folder`."""
    return f"waybill.stack={folder}#{service}"


def choose_ports(
    names: Sequence[str],
    *,
    asked: Mapping[str, int],
    former: Mapping[str, int],
    candidates: Iterable[int],
    is_free: Callable[[int], bool],
) -> dict[str, int]:
    """Choose a port for each name: the asked one, else the former one while it is free, else the next free candidate.

    Raises:
        ConfigError: an asked name is unknown or a number is given twice.
        UnavailableError: an asked port is taken, or the candidates ran out.
    """
    if unknown := sorted(set(asked) - set(names)):
        raise ConfigError(f"no port is called {unknown[0]!r}: expected one of {', '.join(names)}")
    if len(set(asked.values())) < len(asked):
        raise ConfigError("the same port number is given twice")
    chosen: dict[str, int] = {}
    for name, port in asked.items():
        if not is_free(port):
            raise UnavailableError(f"port {port} for {name} is in use: end what uses it, or leave `--port {name}` out")
        chosen[name] = port
    pool = iter(candidates)
    for name in names:
        if name in chosen:
            continue
        wanted = former.get(name)
        taken = set(chosen.values())
        if wanted is not None and wanted not in taken and is_free(wanted):
            chosen[name] = wanted
            continue
        found = next((p for p in pool if p not in taken and p not in former.values() and is_free(p)), None)
        if found is None:
            raise UnavailableError("no free port left between 20000 and 32000 on 127.0.0.1: end some listeners")
        chosen[name] = found
    return {name: chosen[name] for name in names}


def properties_text(settings: Mapping[str, object]) -> str:
    """Return a Java properties file; values are written so that any text survives the reader's escapes."""
    return "".join(f"{key}={_escaped(str(value))}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if text.startswith(" "):
        text = "\\" + text
    if text.isascii():
        return text
    units = text.encode("utf-16-be")  # these files are read as Latin-1
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def broker_properties(stack: Stack, node: int) -> dict[str, object]:
    """Return the settings of one combined broker and controller.

    Fencing of workers depends on the group and transaction settings: see the comments.
    """
    replicas = min(stack.brokers, 3)
    in_sync = 2 if replicas == 3 else 1
    voters = ",".join(f"{n}@{HOST}:{stack.ports[f'kafka-{n}-controller']}" for n in range(1, stack.brokers + 1))
    client = f"CLIENT://{HOST}:{stack.ports[f'kafka-{node}']}"
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": voters,
        "listeners": f"{client},CONTROLLER://{HOST}:{stack.ports[f'kafka-{node}-controller']}",
        "advertised.listeners": client,
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENT",
        "log.dirs": stack.folder / f"kafka-{node}" / "data",
        "auto.create.topics.enable": "false",  # a topic made by accident has the wrong partitions for ever
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "num.partitions": 6,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 12,
        "offsets.retention.minutes": 525_600,  # a destination may be halted for months: its offsets must not expire
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 12,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.min.session.timeout.ms": 6_000,  # the default floor makes fail-over take 45 s
        "group.consumer.session.timeout.ms": 10_000,
        "group.consumer.min.heartbeat.interval.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": 1_000,  # a member learns by it what it was given: the default is 5 s
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,  # a dead transaction holds readers
        "metadata.max.idle.interval.ms": 5_000,  # a quiet broker writes to its own quorum log, twice a second by default
        "log.cleaner.dedupe.buffer.size": 33_554_432,
        "log.retention.check.interval.ms": 60_000,
    }


def connect_properties(stack: Stack, plugin_path: Path) -> dict[str, object]:
    """Return the settings of the Connect worker: distributed, exactly once for sources, secrets only by provider."""
    replicas = min(stack.brokers, 3)
    settings: dict[str, object] = {
        "bootstrap.servers": stack.kafka,
        "group.id": "waybill-connect",
        "listeners": f"http://{HOST}:{stack.ports['connect']}",
        "rest.advertised.host.name": HOST,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "plugin.path": plugin_path,
        "plugin.discovery": "service_load",
        "exactly.once.source.support": "enabled",
        "connector.client.config.override.policy": "None",
        "config.providers": "file,env",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": stack.secrets_file.parent,
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "WAYBILL_.*",
        "scheduled.rebalance.max.delay.ms": 1_000,
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 2_000,
        "producer.transaction.timeout.ms": 8_000,  # a killed worker's own dead transaction blocks its restart as long
        "producer.linger.ms": 5,
        "producer.batch.size": 262_144,
        "producer.compression.type": "lz4",
    }
    for kind, topic in (("config", "configs"), ("offset", "offsets"), ("status", "status")):
        settings[f"{kind}.storage.topic"] = f"waybill-connect-{topic}"
        settings[f"{kind}.storage.replication.factor"] = replicas
    settings["offset.storage.partitions"] = 5
    settings["status.storage.partitions"] = 2
    return settings


def registry_properties(stack: Stack) -> dict[str, object]:
    """Return the settings of the schema registry: schemas live in the stack's PostgreSQL, ids survive a restart."""
    return {
        "quarkus.http.host": HOST,
        "quarkus.http.port": stack.ports["registry"],
        "quarkus.management.host": HOST,  # its default is every interface
        "quarkus.management.port": stack.ports["registry-management"],
        "quarkus.log.level": "INFO",
        "quarkus.log.console.enable": "true",
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "postgresql",
        "apicurio.datasource.url": f"jdbc:postgresql://{HOST}:{stack.postgres_port}/registry",
        "apicurio.datasource.username": "waybill_registry",
        "apicurio.datasource.password": stack.passwords["waybill_registry"],
        "apicurio.datasource.jdbc.initial-size": 1,
        "apicurio.datasource.jdbc.min-size": 1,
    }


def log_settings(log_file: Path) -> str:
    """Return a log4j2 configuration that keeps at most 64 MiB of one service's log."""
    return properties_text(
        {
            "rootLogger.level": "INFO",
            "rootLogger.appenderRef.file.ref": "FILE",
            "appender.file.type": "RollingFile",
            "appender.file.name": "FILE",
            "appender.file.fileName": log_file,
            "appender.file.filePattern": f"{log_file}.%i",
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d{ISO8601} %-5p %c{1.} %m%n",
            "appender.file.policies.type": "Policies",
            "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
            "appender.file.policies.size.size": "16MB",
            "appender.file.strategy.type": "DefaultRolloverStrategy",
            "appender.file.strategy.max": 3,
            "logger.plugins.name": "org.reflections",
            "logger.plugins.level": "ERROR",
        }
    )


#: Initial and largest heap of each JVM.
HEAPS: Final = {
    "kafka": ("-Xms192m", "-Xmx512m"),
    "connect": ("-Xms192m", "-Xmx768m"),
    "registry": ("-Xms64m", "-Xmx400m"),
}
#: The optimising compiler comes in six times later: hot loops still reach it, start-up costs a third less CPU.
LATE_OPTIMISER: Final = (
    "-XX:Tier4InvocationThreshold=30000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=240000",
)
#: No optimising compiler at all, for what answers seldom or ends at once.
FAST_START: Final = ("-XX:TieredStopAtLevel=1",)


def _jvm(installed: Installed, work: Path, heap: tuple[str, ...], compiler: tuple[str, ...]) -> list[str]:
    """Return the part of a command line every JVM of a stack shares."""
    return [
        str(installed.java),
        *heap,
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-Xshare:auto",
        f"-XX:SharedArchiveFile={installed.java_archive}",
        *compiler,
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        f"-Djava.io.tmpdir={work / 'tmp'}",
    ]


def java_command(stack: Stack, installed: Installed, service: str) -> list[str]:
    """Return the command line of a JVM service."""
    kind = service.partition("-")[0]
    work = stack.folder / service
    jvm = _jvm(installed, work, HEAPS[kind], FAST_START if kind == "registry" else LATE_OPTIMISER)
    jvm.append(f"-D{marker(stack.folder, service)}")
    if kind == "registry":
        return [*jvm, "-jar", str(installed.registry / "quarkus-run.jar")]
    jvm += [f"-Dlog4j2.configurationFile={work / 'log4j2.properties'}", *_class_path(installed)]
    if kind == "kafka":
        return [*jvm, "kafka.Kafka", str(work / "server.properties")]
    return [*jvm, "org.apache.kafka.connect.cli.ConnectDistributed", str(work / "connect.properties")]


def format_command(stack: Stack, installed: Installed, node: int) -> list[str]:
    """Return the command line that formats one broker's empty data folder."""
    work = stack.folder / f"kafka-{node}"
    jvm = _jvm(installed, work, ("-Xmx128m",), FAST_START)
    jvm += [f"-Dlog4j2.configurationFile={work / 'log4j2.properties'}", *_class_path(installed)]
    return [*jvm, "kafka.tools.StorageTool", "format", "-t", stack.cluster_id, "-c", str(work / "server.properties")]


def _class_path(installed: Installed) -> list[str]:
    return ["-cp", ":".join(str(jar) for jar in installed.kafka_jars)]


def postgres_command(stack: Stack, binaries: Path, data: Path) -> list[str]:
    """Return the command line of the PostgreSQL server."""
    settings = {
        "listen_addresses": HOST,
        "port": stack.postgres_port,
        "unix_socket_directories": "",
        "wal_level": "logical",
        "max_replication_slots": 64,
        "max_wal_senders": 64,
        "max_connections": 300,
        "password_encryption": "scram-sha-256",
        "shared_buffers": "128MB",
        "max_wal_size": "2GB",
        "log_line_prefix": "%m [%p] %q%u@%d ",
        "timezone": "UTC",
        marker(stack.folder, "postgres").partition("=")[0]: marker(stack.folder, "postgres").partition("=")[2],
    }
    options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
    return [str(binaries / "postgres"), "-D", str(data), *options]
