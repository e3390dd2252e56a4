"""What tests of the fabric and of its users share: movable clocks and waiting for a condition.

Shipped in the wheel so that a listener's or producer's own tests can use it. Nothing below this package
imports it, and pytest is not imported here: the helpers are plain Python.
"""

from waybill.testing.clocks import MovableClock
from waybill.testing.waiting import NotReached, eventually, eventually_async

__all__ = ["MovableClock", "NotReached", "eventually", "eventually_async"]
