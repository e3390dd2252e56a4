"""Durations and sizes: a whole number and a unit, and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.kernel.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("0s", 0.0), ("10s", 10.0), ("5m", 300.0), ("2h", 7200.0), ("30d", 2_592_000.0), ("90s", 90.0)],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "d", "1.5d", "-1s", "1 s", "1S", "1w", "1s\n", "1h30m", "²s", "9999999999999s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("1B", 1), ("256KiB", 262_144), ("1MiB", 1_048_576), ("1536B", 1536), ("2GiB", 2 << 30)]
)
def test_a_size_is_bytes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "7", "1KB", "1kib", "1.5MiB", "-1B", "1 B", "1TiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "0s"), (0.25, "250ms"), (90.0, "90s"), (86_400.0, "1d")])
def test_a_duration_is_written_with_the_largest_unit_that_divides_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_every_duration_reads_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@settings(deadline=None)
@given(st.integers(1, 10**12))
def test_every_size_reads_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes
