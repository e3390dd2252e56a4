"""Chance that can be repeated: a number drawn from a seed and from what it is drawn for.

Nothing here has a state, so the order in which things happen does not change what happens to them.
"""

from collections.abc import Mapping
from hashlib import blake2b

__all__ = ["between", "draw", "pick"]


def draw(seed: int, *what: object) -> float:
    """Return a number in [0, 1), the same for the same seed and words."""
    words = "/".join(map(str, (seed, *what)))
    return int.from_bytes(blake2b(words.encode(), digest_size=8).digest()) / 2**64


def between(seed: int, low: float, high: float, *what: object) -> float:
    """Return a number in [low, high)."""
    return low + (high - low) * draw(seed, *what)


def pick(seed: int, shares: Mapping[str, float], *what: object) -> str | None:
    """Return one name by its share, or None for what the shares leave of 1."""
    left = draw(seed, *what)
    for name, share in shares.items():
        left -= share
        if left < 0:
            return name
    return None
