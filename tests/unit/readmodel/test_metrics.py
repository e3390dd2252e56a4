"""What a scraper sees of what should not be."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from waybill.readmodel.metrics import Meters

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.requirement("DC-7")
def test_a_hole_tells_how_long_it_is_there_and_is_gone_once_it_is_filled() -> None:
    registry = CollectorRegistry()
    meters, labels = Meters(registry), {"tenant": "acme", "kind": "hole"}
    hole = {**labels, "anomalies": 2, "oldest": NOW - timedelta(minutes=3)}

    meters.anomalies([hole], NOW)

    assert registry.get_sample_value("waybill_read_model_open_anomalies", labels) == 2
    assert registry.get_sample_value("waybill_read_model_oldest_anomaly_age_seconds", labels) == 180
    meters.anomalies([], NOW)
    assert registry.get_sample_value("waybill_read_model_oldest_anomaly_age_seconds", labels) is None
