"""Durations, sizes and rates as people write them in files and on the command line: a whole number and a unit, nothing else.

Inside, a duration is seconds, a size is bytes and a rate is so many per second. A number without a unit is refused: `30` once meant days to one
reader and seconds to another. Formatting chooses the largest unit that divides exactly, so that reading back gives
the same value; a duration is never finer than a millisecond.
"""

import re
from typing import Final

__all__ = ["format_duration", "format_rate", "format_size", "parse_duration", "parse_rate", "parse_size"]

#: Unit → milliseconds, largest first.
DURATION_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
#: Unit → bytes, largest first.
SIZE_UNITS: Final = {"GiB": 1_073_741_824, "MiB": 1_048_576, "KiB": 1024, "B": 1}

#: Unit of time a rate is given by → seconds, shortest first.
RATE_UNITS: Final = {"s": 1, "m": 60, "h": 3600}

_RATE: Final = re.compile(r"([0-9]{1,9})/(s|m|h)")
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_SIZE: Final = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)")


def parse_duration(text: str) -> float:
    """Read `500ms`, `10s`, `5m`, `2h` or `30d` as seconds; ValueError for anything else."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("not a duration")
    return int(found[1]) * DURATION_UNITS[found[2]] / 1000


def format_duration(seconds: float) -> str:
    """Render seconds so that `parse_duration` gives them back, to the millisecond."""
    milliseconds = round(seconds * 1000)
    unit = next(unit for unit, size in DURATION_UNITS.items() if milliseconds % size == 0 or size == 1)
    return f"{milliseconds // DURATION_UNITS[unit]}{unit}" if milliseconds else "0s"


def parse_size(text: str) -> int:
    """Read `512B`, `256KiB`, `1MiB` or `2GiB` as bytes; ValueError for anything else."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("not a size")
    return int(found[1]) * SIZE_UNITS[found[2]]


def format_size(size_bytes: int) -> str:
    """Render bytes so that `parse_size` gives them back."""
    unit = next(unit for unit, size in SIZE_UNITS.items() if size_bytes % size == 0)
    return f"{size_bytes // SIZE_UNITS[unit]}{unit}"


def parse_rate(text: str) -> float:
    """Read `50/s`, `10/m` or `600/h` as so many per second; ValueError for anything else, and for none."""
    found = _RATE.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise ValueError("not a rate")
    return int(found[1]) / RATE_UNITS[found[2]]


def format_rate(per_s: float) -> str:
    """Render a rate so that `parse_rate` gives it back: by the shortest unit of which it is a whole number."""
    unit = next((unit for unit, size in RATE_UNITS.items() if round(per_s * size) / size == per_s), "h")
    return f"{round(per_s * RATE_UNITS[unit])}/{unit}"
