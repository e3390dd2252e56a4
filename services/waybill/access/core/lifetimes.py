"""How long keys live: at creation, and when another takes their place."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from waybill.access.core.keys import KeyRecord

__all__ = ["expiry", "shortened"]


def expiry(now: datetime, lifetime: timedelta | None) -> datetime | None:
    """Return when a key made now ends; None is never."""
    return None if lifetime is None else now + lifetime


def shortened(records: Sequence[KeyRecord], now: datetime, overlap: timedelta) -> dict[str, datetime]:
    """Return by key id when each live key ends once another takes its place.

    A rotation shortens a life and never lengthens one: a key that ends earlier by itself is not named.
    """
    end = now + overlap
    return {
        each.key_id: end for each in records if each.is_live(now) and (each.expires_at is None or each.expires_at > end)
    }
