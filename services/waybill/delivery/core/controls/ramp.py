"""How attempts begin again at a destination that was left alone: one at first, twice as many each quarter second."""

from typing import Final

__all__ = ["ramp"]

_DOUBLES_S: Final = 0.25


def ramp(elapsed_s: float, most: int) -> int | None:
    """Return how many attempts may be in flight so long after reopening; None once it no longer matters."""
    steps = int(elapsed_s / _DOUBLES_S)
    return None if steps >= most.bit_length() else min(2**steps, most)
