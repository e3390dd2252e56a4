"""How long a closed row stays, and an answered intent: as long as its command may come once more.

The row of an acknowledged delivery is what tells a repeat from a first attempt. A record lies in its topic for the
retention of `commands`; at the end of that the relay may still write it again, from an outbox row as old, and that
copy lies there as long once more. What is not acknowledged is never dropped: people may still have to settle it.

And how long a record may be all there is of a delivery: half as long as its topic keeps it. What is held back longer,
by a pause or a destination that is dead, becomes a row, or Kafka would delete it unsettled.
"""

from datetime import datetime, timedelta
from typing import Final

__all__ = ["COMMANDS_KEPT", "drop_before", "is_old"]

#: As `topics/commands.yaml` declares; a test compares them.
COMMANDS_KEPT: Final = timedelta(days=30)


def drop_before(now: datetime) -> datetime:
    """Return the instant before which a row must have been closed for nobody to need it."""
    return now - 2 * COMMANDS_KEPT


def is_old(issued_at: datetime, now: datetime) -> bool:
    """Whether a delivery that only a record holds must get its row; its record is no older than its command."""
    return now - issued_at >= COMMANDS_KEPT / 2
