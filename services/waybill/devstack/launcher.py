"""`up`, `down`, `reset`, `status` for a stack by name: locks, state file and messages around one back end.

One launcher at a time works on a name (an advisory lock in its folder); a second one waits and then finds the
work done. State is written before anything is started, so an `up` that was interrupted is simply repeated.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from waybill.devstack import artifacts
from waybill.devstack.backends import Backend, backend_for
from waybill.devstack.plan import properties_text, service_names, unusable_character
from waybill.devstack.stack import STATE_NAME, Stack, Wanted, read_state, write_private, write_state
from waybill.infra.addresses import environment, stack_folder
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["Wanted", "down", "load", "log_files", "names", "put_secret", "reset", "status", "up", "variables"]

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Drop progress lines."""


def _folder(name: str | None) -> Path:
    folder = stack_folder(environment(), Path.cwd(), name).resolve()
    if not folder.name or not folder.name.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"a stack's name is letters, digits, - and _: got {folder.name!r}")
    if (character := unusable_character(folder)) is not None:
        raise ConfigError(
            f"{folder} has {character!r} in its path, which Java or Kafka would misread: set WAYBILL_HOME to another folder"
        )
    return folder


def up(wanted: Wanted | None = None, progress: Progress = silent) -> Stack:
    """Start what is not running and return the stack when every service does its work. Idempotent.

    Raises:
        ConfigError: what was asked contradicts what runs.
        UnavailableError: something this machine lacks, or a service that did not start; says what to do.
    """
    asked = wanted or Wanted()
    folder = _folder(asked.name)
    with _held(folder, progress):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711 if os.geteuid() == 0 else 0o700)  # root's PostgreSQL runs as another user below it
        artifacts.check_space(folder, artifacts.START_BYTES, "a local stack")
        former = read_state(folder)
        _same_kind(asked, former)
        backend = backend_for(asked.backend or (former.backend if former else "process"), folder, progress)
        stack = backend.prepare(asked, former)
        if unknown := set(asked.services or ()) - set(service_names(stack.brokers)):
            raise ConfigError(
                f"no service {min(unknown)!r}: expected some of {', '.join(service_names(stack.brokers))}"
            )
        write_state(stack)
        _write_secrets(stack)
        stack.keys_dir.mkdir(mode=0o700, exist_ok=True)
        backend.start(stack, asked.services or service_names(stack.brokers))
    return stack


def _same_kind(asked: Wanted, former: Stack | None) -> None:
    if former is None:
        return
    again = f"`waybill dev reset --name {former.name}` first, or choose another --name"
    if asked.brokers is not None and asked.brokers != former.brokers:
        raise ConfigError(f"stack {former.name!r} has {former.brokers} broker(s): {again}")
    if asked.backend is not None and asked.backend != former.backend:
        raise ConfigError(f"stack {former.name!r} was made by the {former.backend} back end: {again}")


def _write_secrets(stack: Stack) -> None:
    if not stack.secrets_file.is_file():
        stack.secrets_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(stack.secrets_file, properties_text({"relay.password": stack.passwords["waybill_relay"]}))


def put_secret(stack: Stack, key: str, value: str) -> None:
    """Set one key of the properties file that Connect's `file` provider reads; other keys stay.

    A running connector sees the new value when it is restarted.
    """
    lines = stack.secrets_file.read_text().splitlines(keepends=True) if stack.secrets_file.is_file() else []
    kept = [line for line in lines if line.partition("=")[0] != key]
    write_private(stack.secrets_file, "".join(kept) + properties_text({key: value}))


def load(name: str | None = None) -> Stack:
    """Return a stack by name.

    Raises:
        UnavailableError: it was never up.
    """
    folder = _folder(name)
    stack = read_state(folder)
    if stack is None:
        raise UnavailableError(f"there is no stack {folder.name!r}: `waybill dev up --name {folder.name}`")
    return stack


def names() -> list[str]:
    """Return the names of all stacks of this project that were ever up and not reset."""
    return sorted(state.parent.name for state in _folder("default").parent.glob(f"*/{STATE_NAME}"))


def status(name: str | None = None) -> list[dict[str, object]]:
    """Return one record per service: service, state (`up`, `starting`, `stopped`), pid, address, log."""
    stack = load(name)
    return backend_for(stack.backend, stack.folder, silent).status(stack)


def down(name: str | None = None, progress: Progress = silent) -> list[str]:
    """End the stack's services, and nothing else; data stays. Idempotent. Return the services that were ended."""
    folder = _folder(name)
    with _held(folder, progress):
        return _backend_of(folder, progress).stop(_state_if_whole(folder))


def reset(name: str | None = None, progress: Progress = silent) -> None:
    """End the stack and delete its folder with all data; the cache of programs stays. Idempotent.

    Raises:
        UnavailableError: a file cannot be deleted; names the folder.
    """
    folder = _folder(name)
    with _held(folder, progress):
        backend = _backend_of(folder, progress)
        backend.stop(_state_if_whole(folder))
        backend.forget()
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            raise UnavailableError(f"{folder} could not be deleted whole: another user owns files in it")


@contextmanager
def _held(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the name, and put the two accidents every file operation may meet into words.

    The lock lies beside the folder, so that it survives `reset`.
    """
    message = f"waiting for another command on stack {folder.name!r}"
    try:
        with artifacts.file_lock(folder.parent / ".locks" / folder.name, lambda: progress(message)):
            yield
    except PermissionError as error:
        raise UnavailableError(
            f"{error.filename or folder} belongs to another user: work as the user who made the stack, "
            "or set WAYBILL_HOME to a folder of your own"
        ) from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UnavailableError(
            f"the disk of {folder} is full: free some space (`waybill dev reset` drops a stack's data), then repeat"
        ) from error


def _state_if_whole(folder: Path) -> Stack | None:
    """Return the recorded stack, or None also when the file is damaged: ending must work regardless."""
    try:
        return read_state(folder)
    except ConfigError:
        return None


def _backend_of(folder: Path, progress: Progress) -> Backend:
    former = _state_if_whole(folder)
    return backend_for(former.backend if former else "process", folder, progress)


def log_files(stack: Stack, service: str | None = None) -> list[Path]:
    """Return the log of one service, or of all that wrote one.

    Raises:
        ConfigError: the stack has no such service.
    """
    names = service_names(stack.brokers)
    if service is not None and service not in names:
        raise ConfigError(f"no service {service!r}: expected one of {', '.join(names)}")
    paths = [stack.folder / "logs" / f"{name}.log" for name in ([service] if service else names)]
    return [path for path in paths if path.is_file()]


def variables(stack: Stack) -> dict[str, str]:
    """Return the environment variables that point every command at the stack."""
    return {
        "WAYBILL_STACK": stack.name,
        "WAYBILL_KAFKA": stack.kafka,
        "WAYBILL_CONNECT_URL": stack.connect_url,
        "WAYBILL_REGISTRY_URL": stack.registry_url,
        "WAYBILL_CONTROL_DSN": stack.dsn("waybill"),
        "WAYBILL_WORKER_DSN": stack.dsn("waybill", "waybill_worker"),
        "WAYBILL_KEYS_DIR": str(stack.keys_dir),
        "WAYBILL_APP_DSN": stack.dsn("app", "waybill_app"),
        "WAYBILL_APP_ADMIN_DSN": stack.dsn("app"),
    }
