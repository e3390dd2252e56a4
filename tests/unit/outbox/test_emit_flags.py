"""How `waybill emit` reads its flags."""

from datetime import timedelta
from pathlib import Path

import pytest

from waybill.cli.emit import _aggregate, _data, _duration, _uuid
from waybill.kernel.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("5m", timedelta(minutes=5)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        (None, None),
    ],
)
def test_a_ttl_has_a_unit(text: str | None, expected: timedelta | None):
    assert _duration(text) == expected


@pytest.mark.parametrize("text", ["", "d", "7 days", "-1", "1w", "90", "1.5s"])
def test_a_ttl_that_is_none_says_what_was_expected(text: str):
    with pytest.raises(ConfigError, match="7d"):
        _duration(text)


def test_data_come_from_a_file_or_the_flag(tmp_path: Path):
    file = tmp_path / "data.json"
    file.write_bytes(b'{"price": 1.10}\n')

    assert _data(f"@{file}") == b'{"price": 1.10}\n'
    assert _data('{"a": "ü"}') == '{"a": "ü"}'.encode()
    with pytest.raises(ConfigError, match=r"missing\.json"):
        _data(f"@{tmp_path}/missing.json")


def test_an_aggregate_is_type_and_id():
    assert _aggregate("subject/7/8") == ("subject", "7/8")
    for text in ("subject", "/7", "subject/", ""):
        with pytest.raises(ConfigError, match="type/id"):
            _aggregate(text)


def test_a_replaced_command_is_a_uuid():
    assert _uuid(None) is None
    with pytest.raises(ConfigError, match="UUID"):
        _uuid("7")
