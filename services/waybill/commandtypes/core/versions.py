"""Versions of a command type: their order, their URIs, and which one a command is held against that names none.

Within one major version every schema accepts whatever the one before it accepted, so a producer never has to move
with the catalogue: a command that names no version is held against the newest one of the first major. Another major
is a step its producers take themselves, by naming it.
"""

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["VERSION_PATTERN", "default_of", "major_of", "schema_uri", "version_key"]

VERSION_PATTERN: Final = re.compile(r"^v([1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$")


def version_key(version: str) -> tuple[int, int]:
    """Return (major, minor) of `v<major>.<minor>`.

    Raises:
        ValueError: it is no version.
    """
    found = VERSION_PATTERN.fullmatch(version)
    if found is None:
        raise ValueError("expected v<major>.<minor>")
    return int(found[1]), int(found[2])


def major_of(version: str) -> int:
    """Return the major number of a version."""
    return version_key(version)[0]


def default_of(versions: Sequence[str]) -> str:
    """Return the version for commands that name none: the newest of the first major.

    Args:
        versions: at least one, in any order.
    """
    first = min(map(major_of, versions))
    return max((each for each in versions if major_of(each) == first), key=version_key)


def schema_uri(tenant: str, command_type: str, version: str = "") -> str:
    """Return what a command carries as `dataschema`; without a version, what all URIs of the type begin with."""
    return f"waybill://{tenant}/types/{command_type}/{version}"
