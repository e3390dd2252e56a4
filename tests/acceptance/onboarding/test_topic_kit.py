"""The kit of a destination on Kafka: its page is followed step by step, and its last line is run on real topics."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from fixtures.fix_stream import PARTITIONS, Topic
from typer.testing import CliRunner

from waybill.cli.destinations import app
from waybill.cli.fabric_file import read_fabric
from waybill.contracts.fabric import FabricConfig
from waybill.contracts.names import deliveries_topic, listener_group, results_topic
from waybill.contracts.problem import Problem
from waybill.crypto.keyring import ensure_signing
from waybill.crypto.keys import read_keys
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import DestinationName, Tenant

FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DECLARED = """
apiVersion: waybill/v1
tenants:
  - name: acme
    outboxes: [{name: shop, dsn: {env: SHOP_DSN}, aggregateTypes: [subject]}]
    routes: [{type: subject.erase, destinations: [crm]}]
    destinations:
"""


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python` and `waybill` are those of this test."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def invite(folder: Path, tenant: str, *words: str) -> Path:
    ensure_signing(folder / "keys", Tenant(tenant), SystemClock().now())
    given = ["invite", tenant, "crm", "--out", str(folder / "kit"), "--keys-dir", str(folder / "keys"), *words]
    ended = CliRunner().invoke(app, given)
    assert ended.exit_code == 0, ended.exception
    return folder / "kit"


def blocks(kit: Path, language: str) -> list[str]:
    page = (kit / "README.md").read_text()
    return [line for kind, block in FENCED.findall(page) if kind == language for line in block.splitlines()]


def run(line: str, folder: Path) -> str:
    done = subprocess.run(shlex.split(line), cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("environ")
@pytest.mark.requirement("GW-4", "GW-6")
def test_the_page_of_a_topics_kit_leads_to_a_green_level_and_a_key(tmp_path: Path):
    kit = invite(tmp_path, "acme", "--type", "subject.erase", "--transport", "kafka")

    verified, checked, _, listed = [run(line, kit) for line in blocks(kit, "bash")]

    assert verified.startswith("subject.erase.json: good, subject.erase for sample/")
    assert "reached: L1; " in checked
    assert ", 0 failed, 0 not_tested" in checked
    assert json.loads(listed)["keys"][0]["public"].startswith("whpk_")


@pytest.mark.usefixtures("environ")
def test_a_sample_that_was_changed_is_not_good(tmp_path: Path):
    kit = invite(tmp_path, "acme", "--type", "subject.erase", "--transport", "kafka")
    path = kit / "samples" / "subject.erase.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "key": "subject/other"}))

    done = subprocess.run(["python", "verify.py"], cwd=kit, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, "another key" in done.stdout) == (1, True)


def test_what_the_page_names_is_what_the_fabric_uses_and_nobody_is_asked_for_a_url(tmp_path: Path):
    kit = invite(tmp_path, "acme", "--type", "subject.erase", "--transport", "kafka", "--kafka", "b-1:9092,b-2:9092")
    acme, crm = Tenant("acme"), DestinationName("crm")
    page, facts = (kit / "README.md").read_text(), json.loads((kit / "kit.json").read_text())
    rights = [shlex.split(line) for line in blocks(kit, "console")]
    sample = json.loads((kit / "samples" / "subject.erase.json").read_text())

    declared = yaml.safe_load("\n".join(blocks(kit, "yaml")))[0]
    declared |= {"owner": "crm team", "tradeoff": "keeps ids for 30 days"}
    declared["results"]["keys"] = ["whpk_" + "A" * 43 + "="]
    (tmp_path / "fabric.yaml").write_text(DECLARED + f"      - {json.dumps(declared)}\n")

    assert "https://" not in page
    names = [deliveries_topic(acme, crm), listener_group(acme, crm), results_topic(acme, crm)]
    assert [facts[name] for name in ("deliveries", "group", "results")] == names
    assert [each[-1] for each in rights] == names
    assert all("b-1:9092,b-2:9092" in line for line in [*(" ".join(each) for each in rights), *blocks(kit, "sh")])
    assert sample["topic"] == names[0]
    assert sample["key"] == json.loads(sample["value"])["subject"]
    assert isinstance(read_fabric(tmp_path / "fabric.yaml"), FabricConfig)


def test_a_declared_destination_is_told_its_own_group(tmp_path: Path):
    (tmp_path / "fabric.yaml").write_text(
        DECLARED
        + "      - {name: crm, transport: kafka, listenerGroup: crm-readers, owner: o, tradeoff: t, profile: bounded_deduplication,"
        f" repeats: {{attempts: 10, age: 1h}}, results: {{keys: [whpk_{'A' * 43}=], wait: 1h}}}}\n"
    )
    kit = invite(tmp_path, "acme", "-f", str(tmp_path / "fabric.yaml"))

    assert blocks(kit, "sh")[0].endswith("--group crm-readers --metrics-port 9100")
    assert any("--group crm-readers" in line for line in blocks(kit, "console"))
    assert "  profile: bounded_deduplication" in blocks(kit, "yaml")
    given = ["invite", "acme", "crm", "--out", str(tmp_path / "o"), "-f", str(tmp_path / "fabric.yaml"), "--keys-dir"]
    ended = CliRunner().invoke(app, [*given, str(tmp_path / "keys"), "--transport", "http"])
    assert isinstance(ended.exception, ConfigError)
    assert "declared as kafka" in str(ended.exception)


def test_who_cannot_bear_a_topic_is_told_so(tmp_path: Path):
    given = ["invite", "acme", "crm", "--out", str(tmp_path), "--type", "a.b", "--transport", "kafka"]

    ended = CliRunner().invoke(app, [*given, "--profile", "non_idempotent"])

    assert isinstance(ended.exception, ConfigError)
    assert "read again" in str(ended.exception)


@pytest.mark.usefixtures("environ")
@pytest.mark.stack
async def test_the_last_line_of_the_page_reads_a_sample_and_says_a_signed_result(topic: Topic, tmp_path: Path):
    kit = invite(
        tmp_path, topic.tenant, "--type", "subject.erase", "--transport", "kafka", "--kafka", topic.stack.kafka
    )
    for line in blocks(kit, "bash")[2:]:
        await asyncio.to_thread(run, line, kit)
    (topic.results_key,) = read_keys(kit / "results-keys" / "crm" / "signing.json")
    assignment, _, line = blocks(kit, "sh")[0].partition(" ")
    sandbox = str(kit / "sandbox" / topic.tenant / "jwks.json")
    words = [word if word != "9100" else "0" for word in shlex.split(line)]
    produce(topic, json.loads((kit / "samples" / "subject.erase.json").read_text()))

    process = await asyncio.create_subprocess_exec(
        *words, cwd=kit / "listener", env={**os.environ, assignment.partition("=")[0]: sandbox}, stdout=-3
    )
    try:
        (said,) = await topic.all_said(1)
    finally:
        process.send_signal(signal.SIGTERM)
        ended = await asyncio.wait_for(process.wait(), 30)

    assert ended == 0
    assert isinstance(said.result.problem, Problem)
    assert said.result.problem.reason == "expired"
    assert topic.committed() == {1: 1}


def produce(topic: Topic, sample: dict[str, Any]) -> None:
    """Put a sample where it says, on a partition as a worker would."""
    producer = Producer({"bootstrap.servers": topic.stack.kafka, "acks": "all"})
    producer.produce(
        sample["topic"], sample["value"], sample["key"], 1 % PARTITIONS, headers=list(sample["headers"].items())
    )
    assert producer.flush(30) == 0
