"""Secrets by reference: the environment variable or file a configuration names.

The value is read where it is used and kept nowhere else; messages name the reference, never what it holds. A relative
path is taken from the current folder of the process that reads it, so services are given absolute ones.
"""

from collections.abc import Mapping
from pathlib import Path

from waybill.contracts.fabric import SecretRef
from waybill.infra.addresses import environment
from waybill.kernel.errors import ConfigError

__all__ = ["read_secret"]


def read_secret(reference: SecretRef, what: str, environ: Mapping[str, str] | None = None) -> str:
    """Return a secret; a file's final line end is not part of it.

    Args:
        reference: where it is.
        what: for messages, e.g. `dsn of outbox orders`.
        environ: in place of this process's environment.

    Raises:
        ConfigError: the variable is not set, the file cannot be read, or it is empty.
    """
    if reference.env is not None:
        value = (environment() if environ is None else environ).get(reference.env, "")
        if not value:
            raise ConfigError(f"{what}: set the environment variable {reference.env}")
        return value
    path = Path(reference.file or "")
    try:
        value = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{what}: cannot read the file {path}: {reason}") from error
    if not value:
        raise ConfigError(f"{what}: the file {path} is empty")
    return value
