"""A process that is given more destinations than it was measured with says so, and works."""

import pytest
from structlog.testing import capture_logs

from waybill.delivery.worker import MEASURED_DESTINATIONS, warn_of_crowd
from waybill.infra.log import get_logger


@pytest.mark.parametrize(("destinations", "said"), [(1, 0), (MEASURED_DESTINATIONS, 0), (MEASURED_DESTINATIONS + 1, 1)])
def test_more_destinations_than_were_measured_are_warned_of(destinations: int, said: int) -> None:
    with capture_logs() as logs:
        warn_of_crowd(get_logger("delivery"), destinations)

    assert [entry["event"] for entry in logs] == ["worker.crowded"] * said
    assert all(entry["destinations"] == destinations and "run several" in entry["advice"] for entry in logs)
