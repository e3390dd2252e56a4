"""Stacks of plain processes: started, found, ended, moved and repaired. Mostly PostgreSQL alone, which is quick."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from waybill.devstack import Stack, Wanted, artifacts, down, load, reset, status, up
from waybill.devstack.plan import service_names
from waybill.devstack.processes import find
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.testing import eventually

pytestmark = pytest.mark.postgres

DATABASE = ("postgres",)
WAYBILL = str(Path(sys.executable).with_name("waybill"))


def start(name: str, ports: Mapping[str, int] | None = None) -> Stack:
    return up(Wanted(name=name, services=DATABASE, ports=ports or {}), print)


def query(stack: Stack, statement: str, database: str = "app", role: str = "postgres") -> list[tuple[object, ...]]:
    with closing(psycopg.connect(stack.dsn(database, role), autocommit=True)) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def processes(stack: Stack) -> dict[str, psutil.Process]:
    return find(stack.folder, service_names(3))


@contextmanager
def listening(port: int) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", port)):
        yield


def test_up_again_changes_nothing(own_name: str) -> None:
    first = start(own_name)
    before = processes(first)["postgres"].pid

    second = start(own_name)

    assert second == first
    assert processes(first)["postgres"].pid == before


def test_down_leaves_no_process_and_up_finds_the_rows_again(own_name: str) -> None:
    stack = start(own_name)
    query(stack, "CREATE TABLE kept AS SELECT 1 AS one")
    members = [child.pid for child in processes(stack)["postgres"].children(recursive=True)]

    assert down(own_name) == ["postgres"]

    assert processes(stack) == {}
    assert not [pid for pid in members if psutil.pid_exists(pid)]
    assert down(own_name) == []
    assert query(start(own_name), "SELECT one FROM kept") == [(1,)]


def test_roles_have_what_their_work_needs_and_no_more(postgres: Stack) -> None:
    rows = query(
        postgres,
        "SELECT rolname, rolsuper, rolreplication, rolcreatedb FROM pg_roles WHERE rolname LIKE 'waybill%' ORDER BY 1",
    )

    assert rows == [
        ("waybill_app", False, False, False),
        ("waybill_registry", False, False, False),
        ("waybill_relay", False, True, False),
        ("waybill_worker", False, False, False),
    ]
    for role in ("waybill_app", "waybill_relay", "waybill_worker"):
        assert query(postgres, "SELECT current_user", role=role) == [(role,)]
    assert query(postgres, "SHOW wal_level") == [("logical",)]


def test_a_wrong_password_is_refused(postgres: Stack) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.dsn("app", "waybill_app").replace("waybill_app:", "waybill_app:x"))


def test_the_state_file_is_for_its_owner_only(own_name: str) -> None:
    stack = start(own_name)

    private = [stack.folder / "stack.json", stack.secrets_file]

    assert [oct(path.stat().st_mode & 0o777) for path in private] == ["0o600", "0o600"]
    assert stack.secrets_file.read_text() == f"relay.password={stack.passwords['waybill_relay']}\n"


def test_a_killed_launcher_leaves_services_that_status_up_and_down_find(own_name: str) -> None:
    command = [WAYBILL, "dev", "up", "--name", own_name, "--service", "postgres"]
    launcher = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    folder = Path(".waybill/stacks").absolute() / own_name
    eventually(lambda: (folder / "stack.json").is_file() and "postgres" in find(folder, DATABASE), within_s=60)
    launcher.kill()
    launcher.wait()
    orphan = find(folder, DATABASE)["postgres"].pid

    stack = start(own_name)

    assert [row["pid"] for row in status(own_name) if row["service"] == "postgres"] == [orphan]
    assert query(stack, "SELECT 1") == [(1,)]
    assert down(own_name) == ["postgres"]
    assert not psutil.pid_exists(orphan)


def test_a_killed_server_and_its_reused_process_number_do_not_stop_the_next_up(own_name: str) -> None:
    stack = start(own_name)
    query(stack, "CREATE TABLE kept AS SELECT 1 AS one")
    server = processes(stack)["postgres"]
    pid_file = next(Path(server.cwd()).glob("postmaster.pid"))
    server.kill()
    server.wait()
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")

    again = start(own_name)

    assert query(again, "SELECT one FROM kept") == [(1,)]


def test_down_ends_no_stranger_that_only_names_the_folder(own_name: str) -> None:
    stack = start(own_name)
    stranger = subprocess.Popen(["tail", "-f", "/dev/null", f"{stack.folder}/stack.json"], stdout=subprocess.DEVNULL)
    try:
        down(own_name)

        assert stranger.poll() is None
    finally:
        stranger.send_signal(signal.SIGTERM)
        stranger.wait()


def test_a_former_port_taken_meanwhile_is_replaced(own_name: str) -> None:
    stack = start(own_name)
    down(own_name)
    said: list[str] = []

    with listening(stack.postgres_port):
        moved = up(Wanted(name=own_name, services=DATABASE), said.append)

    assert moved.postgres_port != stack.postgres_port
    assert moved.ports["connect"] == stack.ports["connect"]
    assert [line for line in said if "a port was taken" in line]
    assert query(moved, "SELECT 1") == [(1,)]


def test_an_asked_port_in_use_is_refused_by_number(own_name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(UnavailableError, match=f"port {port} for postgres is in use"):
            start(own_name, ports={"postgres": port})


def test_two_launchers_of_one_name_start_one_server(own_name: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(start, [own_name, own_name])

    assert first == second
    assert query(first, "SELECT 1") == [(1,)]


def test_two_stacks_at_once_share_no_port_and_no_data(postgres: Stack, own_name: str) -> None:
    stack = start(own_name)
    query(stack, "CREATE TABLE only_here AS SELECT 1 AS one")

    assert not set(stack.ports.values()) & set(postgres.ports.values())
    assert query(postgres, "SELECT to_regclass('only_here')") == [(None,)]
    reset(own_name)
    assert query(postgres, "SELECT 1") == [(1,)]


def test_reset_deletes_data_and_keeps_the_programs(own_name: str) -> None:
    stack = start(own_name)
    cache = stack.folder.parent.parent / "cache"
    before = sorted(cache.iterdir()) if cache.is_dir() else []

    reset(own_name)

    assert not stack.folder.exists()
    assert (sorted(cache.iterdir()) if cache.is_dir() else []) == before
    with pytest.raises(UnavailableError, match=f"waybill dev up --name {own_name}"):
        load(own_name)


def test_a_damaged_state_file_is_named_and_does_not_stop_down(own_name: str) -> None:
    stack = start(own_name)
    (stack.folder / "stack.json").write_text("{")

    with pytest.raises(ConfigError, match=rf"damaged: run `waybill dev reset --name {own_name}`"):
        start(own_name)
    assert down(own_name) == ["postgres"]


def test_a_server_that_cannot_start_is_reported_with_its_own_words(own_name: str) -> None:
    stack = start(own_name)
    data = Path(processes(stack)["postgres"].cwd())
    down(own_name)
    (data / "PG_VERSION").write_text("3\n")

    with pytest.raises(
        UnavailableError, match=r"postgres stopped while it started: .*files are incompatible with server"
    ):
        start(own_name)


@pytest.mark.usefixtures("own_name")
def test_a_project_below_a_closed_folder_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed with a blank"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv("WAYBILL_HOME", str(closed / ".waybill"))
    try:
        stack = start("inside")

        assert stack.folder == closed / ".waybill" / "stacks" / "inside"
        assert query(stack, "SELECT 1") == [(1,)]
    finally:
        reset("inside")
    assert closed.stat().st_mode & 0o777 == 0o700


def test_a_path_that_java_would_misread_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYBILL_HOME", str(tmp_path / "a:b"))

    with pytest.raises(ConfigError, match="has ':' in its path"):
        start("x")


def test_the_first_run_without_network_says_so(tmp_path: Path) -> None:
    dead = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "WAYBILL_HOME": str(tmp_path)}
    command = [WAYBILL, "dev", "up", "--name", "n", "--service", "kafka-1"]

    result = subprocess.run(command, env={**os.environ, **dead}, capture_output=True, text=True, check=False)

    assert result.returncode == 3
    assert "could not fetch" in result.stderr
    assert "network is needed only for the first run" in result.stderr


def test_a_later_run_needs_no_network(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    said: list[str] = []

    installed = artifacts.install(stack.folder.parent.parent / "cache", said.append)

    assert installed.registry.is_dir()
    assert said == []
