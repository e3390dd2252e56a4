"""What a listener counts, and where it is read: on a port of its own, never at the door that the world can reach."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fixtures.fix_listener import Site
from typer.testing import CliRunner

from waybill.cli.listen import app
from waybill.kernel.errors import ConfigError

HERE = {"tenant": "acme", "destination": "crm"}

APP = """
from pathlib import Path
from waybill.crypto.verifying import VerificationKeys
from waybill.listener import Listener, SqliteStore

listener = Listener(
    tenant="acme", destination="crm", keys=VerificationKeys(), store=SqliteStore(Path("deliveries.sqlite"))
)
bare = lambda *_: None
"""


def counted(site: Site, result: str) -> float | None:
    return site.listener.registry.get_sample_value("waybill_listener_deliveries_total", {**HERE, "result": result})


@pytest.mark.postgres
async def test_every_delivery_is_counted_by_what_became_of_it(site: Site) -> None:
    command = site.make_command()
    await site.send(command)
    await site.send(command)
    await site.send(site.make_command(), webhook_signature="v1a,AAAA")
    await site.client.get("/healthz")

    assert (counted(site, "executed"), counted(site, "repeated"), counted(site, "AUTH")) == (1, 1, 1)
    assert site.listener.registry.get_sample_value("waybill_listener_seconds_count", HERE) == 3
    assert site.listener.registry.get_sample_value("waybill_listener_in_flight", HERE) == 0


@pytest.mark.postgres
async def test_metrics_are_not_at_the_door(site: Site) -> None:
    answer = await site.client.get("/metrics")

    assert answer.status_code == 405


def test_a_listener_that_runs_alone_serves_them_on_a_port_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(APP)
    words = ["-c", "from waybill.cli import main; main()", "listen", "counting:listener", "--port", "0", "--json"]
    with subprocess.Popen(
        [sys.executable, *words, "--metrics-port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            with urllib.request.urlopen(told["metrics"], timeout=10) as answer:
                text = answer.read().decode()
        finally:
            process.terminate()

    assert 'waybill_listener_in_flight{destination="crm",tenant="acme"} 0.0' in text


def test_what_is_no_listener_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counting_nothing.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    ended = CliRunner().invoke(app, ["counting_nothing:bare", "--metrics-port", "0"])

    assert isinstance(ended.exception, ConfigError)
    assert "--metrics-port" in str(ended.exception)
