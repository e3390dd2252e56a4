"""The real clock."""

import time
from datetime import UTC, datetime

__all__ = ["SystemClock"]


class SystemClock:
    """Wall time in UTC, and a monotonic count that includes suspended time."""

    def now(self) -> datetime:
        """Return the wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return CLOCK_BOOTTIME seconds: a frozen machine's lease runs out while it sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
