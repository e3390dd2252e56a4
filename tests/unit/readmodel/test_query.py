"""Shortened identifiers."""

import uuid

import pytest

from waybill.kernel.errors import ConfigError
from waybill.readmodel.query import id_range


@pytest.mark.parametrize(
    "prefix",
    ["0199f3c0", "0199F3C0", "0199f3c0-1111", "0199f3c0-1111-7000-8000-0000000000aa", "0199f3c011117000"],
)
def test_range_of_a_prefix_holds_the_id_it_was_cut_from(prefix: str) -> None:
    low, high = id_range(prefix)

    assert low <= uuid.UUID("0199f3c0-1111-7000-8000-0000000000aa") <= high


def test_range_of_a_prefix_ends_where_the_prefix_does() -> None:
    low, high = id_range("0199f3c0")

    assert not low <= uuid.UUID("0199f3c1-0000-7000-8000-000000000000") <= high
    assert not low <= uuid.UUID("0199f3bf-ffff-7fff-bfff-ffffffffffff") <= high


@pytest.mark.parametrize("prefix", ["", "abc", "xyz1", "0199f3c0-1111-7000-8000-0000000000aa0", "' OR 1=1"])
def test_text_that_cannot_be_an_id_is_refused_with_what_was_expected(prefix: str) -> None:
    with pytest.raises(ConfigError, match="4 or more digits"):
        id_range(prefix)
