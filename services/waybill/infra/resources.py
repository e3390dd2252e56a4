"""The declarative folders, wherever this installation keeps them.

`topics/`, `avro/` and `connect/` lie at the top of a checkout and travel inside the wheel, as does the package for Node. The checkout is tried
first: an editable install leaves a stale copy in site-packages, which must never win.
"""

from pathlib import Path
from typing import Final

from waybill.kernel.errors import UnavailableError

__all__ = ["resource_dir"]

_PLACES: Final = (
    Path(__file__).parents[3],  # a checkout
    Path(__file__).parents[1] / "_resources",  # an installed wheel
)


def resource_dir(name: str) -> Path:
    """Return the folder of one kind of declaration: `topics`, `avro` or `connect`; or of the package for Node.

    Raises:
        UnavailableError: this installation lacks it.
    """
    for place in _PLACES:
        folder = place / name
        if (folder / "README.md").is_file():
            return folder
    raise UnavailableError(f"the folder {name}/ is missing from this installation: reinstall waybill")
