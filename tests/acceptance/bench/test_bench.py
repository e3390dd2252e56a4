"""Every kind of benchmark that is quick enough runs to its end and says what it measured; no time is asserted."""

import json
import os
import subprocess
import sys

import pytest

from waybill.devstack import Stack

WAYBILL = [sys.executable, "-c", "from waybill.cli import main; main()"]


@pytest.mark.stack
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("words", "figures"),
    [
        ("deliver --commands 200 --pairs 1 --listener-ms 5 --aggregates 50", {"deliveries_per_s", "ratio_to_raw_loop"}),
        ("deliver --commands 100 --pairs 1 --profile non_idempotent", {"deliveries_per_s", "cpu_us_per_delivery"}),
        ("handover --commands 200 --pairs 1", {"hand_overs_per_s", "bare_per_s", "ratio_to_bare"}),
        ("emit --commands 20 --pairs 1 --writers 2", {"wal_bytes_per_command"}),
        ("verify --requests 20 --pairs 1", {"verified_per_s", "openssl_per_s", "ratio_to_openssl"}),
        ("listener --commands 40 --rounds 2", {"applied_per_s", "rows"}),
        ("submit --commands 20 --batches 2 --batch 10 --pairs 1", {"single_per_s", "batched_per_s"}),
        ("fanout --destinations 2 --commands 20", {"rss_mb", "threads", "idle_cpu", "broker_bytes_per_delivery"}),
    ],
)
def test_a_benchmark_runs_to_its_end(stack: Stack, words: str, figures: set[str]):
    environ = {**os.environ, "WAYBILL_STACK": stack.name, "WAYBILL_HOME": str(stack.folder.parent.parent)}

    done = subprocess.run(
        [*WAYBILL, "bench", *words.split(), "--json"], env=environ, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert figures <= report.keys()
    assert all(report[name] > 0 for name in figures)
    assert report.get("order_inversions", 0) == report.get("lost_or_doubled", 0) == 0
