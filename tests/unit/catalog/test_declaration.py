"""Reading a topic file: what is accepted, and how every fault names its line."""

import pytest

from waybill.catalog import load_topics, topics_of
from waybill.catalog.core.declaration import parse_topic
from waybill.kernel.errors import ConfigError

GOOD = """\
description: Something that happened.
owner: fabric
producers: [worker]
consumers: [read model]
key: aggregate
value: Outcome.avsc
ordering_key: aggregate
partitions: tenant
replication: cluster
cleanup: [delete]
retention: [30d, 64MiB]
max_message: 1MiB
settings:
  segment.ms: "3600000"
"""


def test_a_good_file_becomes_a_declaration_with_units_resolved() -> None:
    declared = parse_topic(GOOD, "topics/outcomes.yaml")

    assert declared.topic("acme") == "waybill.acme.outcomes"
    assert (declared.retention_ms, declared.retention_bytes) == (30 * 86_400_000, 64 << 20)
    assert declared.max_message_bytes == 1 << 20
    assert declared.replication is None
    assert declared.settings == {"segment.ms": "3600000"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # a value of the wrong kind
        ("retention: [30d, 64MiB]", "retention: soon", "topics/x.yaml:11: retention: expected a list"),
        # a unit nobody knows
        ("[30d, 64MiB]", "[30days]", "topics/x.yaml:11: retention: expected `forever`, or a time such as 30d"),
        # two times
        ("[30d, 64MiB]", "[30d, 40d]", "topics/x.yaml:11: retention: expected `forever`, or a time"),
        # nothing kept
        ("[30d, 64MiB]", "[0d]", "topics/x.yaml:11: retention: expected `forever`, or a time"),
        # a count of its own
        ("partitions: tenant", "partitions: 12", "topics/x.yaml:8: partitions: expected `tenant`"),
        ("replication: cluster", "replication: many", "topics/x.yaml:9: replication: expected `cluster` or a number"),
        ("cleanup: [delete]", "cleanup: [wipe]", "topics/x.yaml:10: cleanup: expected [delete], [compact]"),
        ("max_message: 1MiB", "max_message: 1MB", "topics/x.yaml:12: max_message: expected a size"),
        # an unknown field
        ("owner: fabric", "owners: fabric", "topics/x.yaml:2: owners: expected one of description, owner"),
        # the same fault, from the other side
        ("owner: fabric", "owners: fabric", "topics/x.yaml:1: owner: missing; expected the team"),
        # a field given twice
        ("owner: fabric", "owner: fabric\nowner: other", "topics/x.yaml:3: owner: given twice"),
        # a setting that has a field of its own
        ("segment.ms", "retention.ms", "topics/x.yaml:14: settings: expected retention.ms in the field `retention`"),
        ('segment.ms: "3600000"', "segment.ms: [1]", "topics/x.yaml:14: settings: expected one value for segment.ms"),
        ("owner: fabric", "owner: ''", "topics/x.yaml:2: owner: expected text"),
        # not YAML at all
        ("owner: fabric", "owner: [", "not YAML"),
    ],
)
def test_a_fault_names_file_line_field_and_what_was_expected(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_topic(GOOD.replace(old, new), "topics/x.yaml")

    assert message in str(raised.value)


def test_all_faults_of_a_file_are_reported_at_once() -> None:
    text = GOOD.replace("[30d, 64MiB]", "[x]").replace("1MiB", "x").replace("partitions: tenant\n", "")

    with pytest.raises(ConfigError) as raised:
        parse_topic(text, "topics/x.yaml")

    assert len(str(raised.value).splitlines()) == 3


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"topics/x.yaml:1: expected a mapping"):
        parse_topic(text, "topics/x.yaml")


@pytest.mark.parametrize(
    ("text", "ms", "size"),
    [
        ("[250ms]", 250, None),
        ("[12h]", 43_200_000, None),
        ("[1GiB]", None, 1 << 30),
        ("[7d, 64MiB]", 604_800_000, 64 << 20),
    ],
)
def test_retention_is_a_time_a_size_or_both(text: str, ms: int | None, size: int | None) -> None:
    declared = parse_topic(GOOD.replace("[30d, 64MiB]", text), "topics/x.yaml")

    assert (declared.retention_ms, declared.retention_bytes) == (ms, size)


def test_the_shipped_files_are_read_and_commands_comes_first() -> None:
    names = [declared.name for declared in load_topics()]

    assert names == [
        "commands",
        "audit",
        "config",
        "dead-letters",
        "decisions",
        "deliveries",
        "ingress",
        "outcomes",
        "requests",
        "results",
        "state",
    ]


def test_a_topic_of_destinations_is_one_for_each_that_needs_it() -> None:
    names = [topic.topic("acme") for topic in topics_of(load_topics(), ["crm", "cad"])]

    assert names[-2:] == ["waybill.acme.results.crm", "waybill.acme.results.cad"]
    assert "waybill.acme.results" not in names
    assert [topic.name for topic in topics_of(load_topics())] == ["commands", "audit", "config", "dead-letters", "decisions", "outcomes", "requests", "state"]  # fmt: skip


def test_an_optional_topic_is_there_for_tenants_that_ask() -> None:
    asked, others = (
        [topic.topic("acme") for topic in topics_of(load_topics(), asked_for=names)] for names in ({"ingress"}, set())
    )

    assert [name for name in asked if name not in others] == ["waybill.acme.ingress"]


def test_deliveries_are_topics_of_those_who_take_them_from_kafka() -> None:
    names = [topic.topic("acme") for topic in topics_of(load_topics(), ["crm", "cad"], ["cad"])]

    assert [name for name in names if "deliveries" in name] == ["waybill.acme.deliveries.cad"]
    assert "waybill.acme.results.cad" in names


def test_state_outlives_commands_and_compacted_topics_close_their_segments() -> None:
    declared = {declaration.name: declaration for declaration in load_topics()}

    assert (declared["state"].retention_ms or 0) >= (declared["commands"].retention_ms or 0)
    for name in ("state", "config"):
        assert "compact" in declared[name].cleanup
        assert {"segment.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio"} <= declared[name].settings.keys()
