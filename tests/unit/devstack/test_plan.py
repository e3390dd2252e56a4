"""The plan of a stack as tables: ports, settings, command lines."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.devstack import plan
from waybill.devstack.stack import Stack, from_document, to_document
from waybill.kernel.errors import ConfigError, UnavailableError

FOLDER = Path("/p/.waybill/stacks/x")
StackOf = Callable[[int], Stack]
INSTALLED = plan.Installed(
    java=Path("/j/java"),
    java_archive=Path("/c/java.jsa"),
    kafka_jars=(Path("/c/kafka/a.jar"), Path("/c/kafka/b.jar")),
    plugin_path=Path("/c/debezium"),
    registry=Path("/c/registry"),
)


NAMES = ("postgres", "connect")
CHOICES: list[tuple[str, dict[str, int], dict[str, int], set[int], dict[str, int]]] = [
    # what is asked, what was before, what is in use, what is chosen (candidates are 30000, 30001, ...)
    ("first start takes candidates in order", {}, {}, set(), {"postgres": 30000, "connect": 30001}),
    ("former ports are kept", {}, {"postgres": 25, "connect": 26}, set(), {"postgres": 25, "connect": 26}),
    ("a former port in use moves alone", {}, {"postgres": 25, "connect": 26}, {25}, {"postgres": 30000, "connect": 26}),
    ("an asked port beats the former", {"connect": 99}, {"connect": 26}, set(), {"postgres": 30000, "connect": 99}),
    ("a candidate in use is passed over", {}, {}, {30000}, {"postgres": 30001, "connect": 30002}),
    ("another's former port is not taken", {}, {"connect": 30000}, set(), {"postgres": 30001, "connect": 30000}),
    (
        "an asked port pushes a former one away",
        {"connect": 25},
        {"postgres": 25},
        set(),
        {"postgres": 30000, "connect": 25},
    ),
]


@pytest.mark.parametrize(("asked", "former", "used", "chosen"), [c[1:] for c in CHOICES], ids=[c[0] for c in CHOICES])
def test_ports_are_chosen_by_wish_then_habit_then_freedom(
    asked: dict[str, int], former: dict[str, int], used: set[int], chosen: dict[str, int]
) -> None:
    actual = plan.choose_ports(
        NAMES, asked=asked, former=former, candidates=range(30000, 30010), is_free=lambda port: port not in used
    )

    assert actual == chosen


REFUSED: list[tuple[str, dict[str, int], type[Exception], str]] = [
    ("an unknown name", {"mysql": 1}, ConfigError, "no port is called 'mysql': expected one of postgres, connect"),
    ("one number twice", {"postgres": 7, "connect": 7}, ConfigError, "given twice"),
    ("an asked port in use", {"postgres": 5}, UnavailableError, "port 5 for postgres is in use"),
    ("nothing left", {}, UnavailableError, "no free port left"),
]


@pytest.mark.parametrize(("asked", "error", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_ports_that_cannot_be_had_are_refused_with_what_to_do(
    asked: dict[str, int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plan.choose_ports(NAMES, asked=asked, former={}, candidates=range(6, 9), is_free=lambda _: False)


BROKER_RULES = [
    # cluster size, setting, value, why it matters
    (1, "offsets.topic.replication.factor", 1),
    (1, "min.insync.replicas", 1),
    (3, "default.replication.factor", 3),
    (3, "min.insync.replicas", 2),
    (3, "transaction.state.log.min.isr", 2),
    (3, "share.coordinator.state.topic.replication.factor", 3),
    (1, "auto.create.topics.enable", "false"),
    (1, "group.consumer.min.session.timeout.ms", 6_000),
    (1, "group.consumer.heartbeat.interval.ms", 1_000),
    (1, "group.consumer.session.timeout.ms", 10_000),
    (1, "transaction.abort.timed.out.transaction.cleanup.interval.ms", 1_000),
    (1, "group.initial.rebalance.delay.ms", 0),
]


@pytest.mark.parametrize(("brokers", "key", "value"), BROKER_RULES, ids=[f"{r[0]}-{r[1]}" for r in BROKER_RULES])
def test_broker_settings(brokers: int, key: str, value: object, stack_of: StackOf) -> None:
    assert plan.broker_properties(stack_of(brokers), 1)[key] == value


CONNECT_RULES = [
    ("exactly.once.source.support", "enabled"),
    ("connector.client.config.override.policy", "None"),
    ("producer.transaction.timeout.ms", 8_000),
    ("config.providers", "file,env"),
    ("config.providers.file.param.allowed.paths", FOLDER / "secrets"),
    ("plugin.path", Path("/c/debezium")),
    ("config.storage.topic", "waybill-connect-configs"),
    ("status.storage.topic", "waybill-connect-status"),
]


@pytest.mark.parametrize(("key", "value"), CONNECT_RULES, ids=[rule[0] for rule in CONNECT_RULES])
def test_connect_settings(key: str, value: object, stack_of: StackOf) -> None:
    assert plan.connect_properties(stack_of(1), INSTALLED.plugin_path)[key] == value


def test_nothing_listens_beyond_this_machine(stack_of: StackOf) -> None:
    stack = stack_of(3)
    texts: list[Mapping[str, object]] = [plan.broker_properties(stack, node) for node in (1, 2, 3)]
    texts += [plan.connect_properties(stack, INSTALLED.plugin_path), plan.registry_properties(stack)]

    listening = {
        key: str(value)
        for settings in texts
        for key, value in settings.items()
        if key in {"listeners", "advertised.listeners", "quarkus.http.host", "quarkus.management.host"}
    }

    assert len(listening) == 4
    assert all("127.0.0.1" in value and "0.0.0.0" not in value for value in listening.values())
    assert "listen_addresses=127.0.0.1" in plan.postgres_command(stack, Path("/b"), Path("/d"))


def test_no_two_listeners_of_three_brokers_share_a_port() -> None:
    ports = plan.port_names(3)

    assert len(ports) == len(set(ports)) == 10


def test_every_command_line_carries_its_marker_as_one_argument(stack_of: StackOf) -> None:
    stack = stack_of(1)

    for service in ("kafka-1", "connect", "registry"):
        assert f"-D{plan.marker(FOLDER, service)}" in plan.java_command(stack, INSTALLED, service)
    assert plan.marker(FOLDER, "postgres") in plan.postgres_command(stack, Path("/b"), Path("/d"))


def test_no_command_line_shows_a_secret(stack_of: StackOf) -> None:
    stack = stack_of(1)
    lines = [plan.java_command(stack, INSTALLED, service) for service in ("kafka-1", "connect", "registry")]
    lines += [plan.format_command(stack, INSTALLED, 1), plan.postgres_command(stack, Path("/b"), Path("/d"))]

    assert not [argument for line in lines for argument in line if "secret-of" in argument]
    assert "secret-of" not in repr(stack)


@pytest.mark.parametrize(
    "setting", ["wal_level=logical", "max_replication_slots=64", "max_wal_senders=64", "max_connections=300"]
)
def test_postgres_settings(setting: str, stack_of: StackOf) -> None:
    assert setting in plan.postgres_command(stack_of(1), Path("/b"), Path("/d"))


@pytest.mark.parametrize(
    ("path", "character"),
    [("/a/b-c_d e", None), ("/a:b", ":"), ("/a,b", ","), ("/a#b", "#"), ("/a%20", "%"), ("/é", None)],
)
def test_a_path_that_java_would_misread_is_found(path: str, character: str | None) -> None:
    assert plan.unusable_character(Path(path)) == character


def _read_properties(text: str) -> dict[str, str]:
    """Read one entry as java.util.Properties does: escapes, Latin-1, leading blanks dropped."""
    key, _, raw = text.removesuffix("\n").partition("=")
    raw = raw.lstrip(" ")
    units, at = [], 0
    while at < len(raw):
        if raw[at] != "\\":
            units.append(ord(raw[at]))
            at += 1
        elif raw[at + 1] == "u":
            units.append(int(raw[at + 2 : at + 6], 16))
            at += 6
        else:
            units.append(ord({"n": "\n", "r": "\r", "t": "\t"}.get(raw[at + 1], raw[at + 1])))
            at += 2
    return {key: b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be")}


@given(
    st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x0b\x0c\x85\u2028\u2029\x1c\x1d\x1e")
    )
)
def test_properties_carry_any_text(value: str) -> None:
    text = plan.properties_text({"key": value})

    assert text.isascii()
    assert _read_properties(text) == {"key": value}


def test_the_state_file_brings_the_same_stack_back_where_it_is_found(stack_of: StackOf) -> None:
    stack = stack_of(3)

    assert from_document(to_document(stack), FOLDER) == stack
    assert from_document(to_document(stack), Path("/moved/x")).keys_dir == Path("/moved/x/keys")


def test_a_dsn_quotes_what_a_uri_would_misread(stack_of: StackOf) -> None:
    stack = Stack(**{field: getattr(stack_of(1), field) for field in Stack.__slots__} | {"passwords": {"a b": "p@/:?"}})

    assert stack.dsn("d", "a b") == "postgresql://a%20b:p%40%2F%3A%3F@127.0.0.1:20000/d"
    with pytest.raises(ConfigError, match="has no role 'nobody'"):
        stack.dsn("d", "nobody")
