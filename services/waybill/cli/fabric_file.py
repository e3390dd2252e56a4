"""Reading a `fabric.yaml` with the files it names, for every command that takes one."""

import sys
from pathlib import Path

from waybill.contracts.fabric import FabricConfig
from waybill.fabric import Problem, parse
from waybill.kernel.errors import ConfigError

__all__ = ["read_fabric"]


def read_fabric(file: Path) -> FabricConfig | tuple[Problem, ...]:
    """Read the file, `-` for standard input; files it names are taken from its folder.

    Raises:
        ConfigError: it cannot be read.
    """
    is_stdin = str(file) == "-"
    folder = Path() if is_stdin else file.parent
    try:
        data = sys.stdin.buffer.read() if is_stdin else file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    return parse(data, lambda name: (folder / name).read_bytes())
