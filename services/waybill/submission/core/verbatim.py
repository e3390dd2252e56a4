"""Reading a JSON object member by member while one member's text stays as it was written.

The data of a command are signed later, so the bytes that came are the bytes that are stored: `1.10` stays `1.10`, an
integer of a thousand digits keeps them, a name that comes twice comes twice, no character is escaped or unescaped.
Reading and writing JSON again keeps none of this. So the text of such a member is only walked over, which proves that
it is one JSON value, and cut out.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Slice", "read_object", "read_objects"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Slice:
    """The text of one JSON value, exactly as it came."""

    text: str


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _pass(_digits: str) -> int:
    return 0


_Scan = Callable[[str, int], tuple[Any, int]]
_READ: Final[_Scan] = json.JSONDecoder(parse_constant=_refuse).scan_once  # type: ignore[attr-defined] # documented in the class, not in its stub
_WALK: Final[_Scan] = json.JSONDecoder(parse_constant=_refuse, parse_int=_pass, parse_float=_pass).scan_once  # type: ignore[attr-defined] # the same


def read_object(text: str, verbatim: str) -> dict[str, object]:
    """Read a text that is one JSON object; the member named `verbatim` is a `Slice`.

    Raises:
        ValueError: it is anything else, or a member comes twice.
        RecursionError: nested too deep.
    """
    found, at = _object(text, _skip(text, 0), verbatim)
    _end(text, at)
    return found


def read_objects(text: str, member: str, verbatim: str) -> list[dict[str, object]]:
    """Read a text that is `{"member": [object, …]}`; in each object the member named `verbatim` is a `Slice`.

    Raises:
        ValueError: it is anything else, or a member comes twice.
        RecursionError: nested too deep.
    """
    at = _expect(text, _skip(text, 0), "{")
    name, at = _scan(_READ, text, at)
    if name != member:
        raise ValueError(f"expected one member, {member}")
    at = _expect(text, _expect(text, at, ":"), "[")
    found: list[dict[str, object]] = []
    if text[at : at + 1] != "]":
        while True:
            each, at = _object(text, at, verbatim)
            found.append(each)
            if text[at : at + 1] != ",":
                break
            at = _skip(text, at + 1)
    at = _expect(text, at, "]")
    _end(text, _expect(text, at, "}"))
    return found


def _object(text: str, at: int, verbatim: str) -> tuple[dict[str, object], int]:
    found: dict[str, object] = {}
    at = _expect(text, at, "{")
    if text[at : at + 1] != "}":
        while True:
            name, at = _scan(_READ, text, at)
            if not isinstance(name, str):
                raise ValueError("a member has a name")  # noqa: TRY004 - what came is wrong, not our call
            if name in found:
                raise ValueError("a member comes twice")
            at = _expect(text, at, ":")
            value, end = _value(text, at, is_verbatim=name == verbatim)
            found[name] = value
            at = _skip(text, end)
            if text[at : at + 1] != ",":
                break
            at = _skip(text, at + 1)
    return found, _expect(text, at, "}")


def _value(text: str, at: int, *, is_verbatim: bool) -> tuple[object, int]:
    try:
        value, end = (_WALK if is_verbatim else _READ)(text, at)
    except StopIteration as error:
        raise ValueError("a member has no value") from error
    return (Slice(text[at:end]) if is_verbatim else value), end


def _scan(scan: _Scan, text: str, at: int) -> tuple[object, int]:
    try:
        value, end = scan(text, at)
    except StopIteration as error:
        raise ValueError("not JSON") from error
    return value, _skip(text, end)


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"expected {character}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it matches nothing, too
    return found.end()


def _end(text: str, at: int) -> None:
    if at != len(text):
        raise ValueError("something follows")
