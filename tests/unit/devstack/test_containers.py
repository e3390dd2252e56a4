"""The container back end's definitions, asserted as data: no engine is needed, and none was ever used."""

from collections.abc import Callable
from pathlib import Path

import pytest

from waybill.devstack import Stack, plan
from waybill.devstack.backends import BACKENDS, backend_for
from waybill.devstack.backends.containers import ContainerSpec, container_specs
from waybill.kernel.errors import ConfigError

FOLDER = Path("/p/.waybill/stacks/x")
StackOf = Callable[[int], Stack]


def specs(stack: Stack) -> dict[str, ContainerSpec]:
    return {spec.service: spec for spec in container_specs(stack, Path("/c/debezium"), "1000:1000")}


def test_there_is_a_container_for_each_service_in_starting_order(stack_of: StackOf) -> None:
    assert tuple(specs(stack_of(3))) == plan.service_names(3)


def test_images_are_the_versions_the_process_back_end_runs(stack_of: StackOf) -> None:
    images = {service: spec.image for service, spec in specs(stack_of(1)).items()}

    assert images == {
        "postgres": "postgres:18.6",
        "kafka-1": "apache/kafka:4.4.0",
        "connect": "apache/kafka:4.4.0",
        "registry": "apicurio/apicurio-registry:3.3.3",
    }


def test_labels_and_names_tell_stacks_apart(stack_of: StackOf) -> None:
    one = specs(stack_of(3))

    assert len({spec.name for spec in one.values()}) == 6
    assert one["connect"].label == "/p/.waybill/stacks/x#connect"


def test_a_broker_formats_its_folder_once_and_reads_the_same_file_as_a_process(stack_of: StackOf) -> None:
    shell, flag, script = specs(stack_of(1))["kafka-1"].command

    assert (shell, flag) == ("sh", "-c")
    assert script.startswith(f'[ -f "{FOLDER}/kafka-1/data/meta.properties" ] || ')
    assert script.endswith(f'exec /opt/kafka/bin/kafka-server-start.sh "{FOLDER}/kafka-1/server.properties"')


def test_connect_reads_secrets_and_plugins_and_cannot_write_them(stack_of: StackOf) -> None:
    mounts = specs(stack_of(1))["connect"].mounts

    assert mounts[str(FOLDER / "secrets")] == "ro"
    assert mounts["/c/debezium"] == "ro"
    assert mounts[str(FOLDER / "connect")] == "rw"


def test_only_the_database_container_knows_the_superuser_password(stack_of: StackOf) -> None:
    knowing = [name for name, spec in specs(stack_of(1)).items() if "secret-of-postgres" in str(spec)]

    assert knowing == ["postgres"]


def test_postgres_keeps_its_settings_and_the_socket_its_image_needs(stack_of: StackOf) -> None:
    command = specs(stack_of(1))["postgres"].command

    assert command[:2] == ("postgres", "-c")
    assert {"wal_level=logical", "port=20000", "listen_addresses=127.0.0.1"} <= set(command)
    assert not [part for part in command if part.startswith("unix_socket_directories")]


def test_services_run_as_the_caller_except_the_database(stack_of: StackOf) -> None:
    users = {service: spec.user for service, spec in specs(stack_of(1)).items()}

    assert users == {"postgres": None, "kafka-1": "1000:1000", "connect": "1000:1000", "registry": "1000:1000"}


def test_every_back_end_of_the_table_can_be_made(tmp_path: Path) -> None:
    assert [type(backend_for(name, tmp_path, print)).__name__ for name in BACKENDS] == [
        "ProcessBackend",
        "ContainersBackend",
        "ExternalBackend",
    ]
    with pytest.raises(ConfigError, match="expected one of process, containers, external"):
        backend_for("docker", tmp_path, print)
