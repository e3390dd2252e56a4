"""What an orchestrator is told: whether the process turns, and whether it can take requests, by reason."""

import pytest

from waybill.submission.pulse import Pulse
from waybill.testing import MovableClock


@pytest.mark.parametrize(
    ("beaten", "later_s", "config_age_s", "alive", "ready"),
    [
        # it turns and the control database answers
        (True, 0.0, 0.5, True, True),
        # nothing came up yet: alive, not ready
        (False, 60.0, 0.5, True, False),
        # the control database is away: alive, not ready
        (True, 0.0, 6.0, True, False),
        # the loop stands
        (True, 11.0, 0.5, False, False),
    ],
)
def test_health_is_told_by_reason(beaten: bool, later_s: float, config_age_s: float, alive: bool, ready: bool) -> None:
    clock = MovableClock()
    pulse = Pulse(clock, lambda: config_age_s)
    if beaten:
        pulse.beat()

    clock.advance(later_s)

    assert all(pulse.alive().values()) is alive
    assert all(pulse.ready().values()) is ready
