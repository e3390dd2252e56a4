"""Files named by the lock: taken only when their hash matches, kept as whole sets, fetched once."""

import errno
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from waybill.devstack.artifacts import Locked, check_space, parse_lock, provide_sets, read_lock
from waybill.devstack.backends.external import parse_passwords
from waybill.devstack.locking import lock_text
from waybill.kernel.errors import ConfigError, UnavailableError


def _archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("plugin/inner.jar")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"inner"))
    return buffer.getvalue()


CONTENTS = {"a-1.jar": b"aaa", "b-2.jar": b"bb", "p-3-plugin.tar.gz": _archive()}


def _locked(file_name: str, place: str) -> Locked:
    content = CONTENTS[file_name]
    artifact, version = file_name.split("-", maxsplit=1)[0], file_name.split("-")[1].removesuffix(".jar")
    archive = file_name.endswith(".tar.gz")
    return Locked(
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        group="g",
        artifact=artifact,
        version=version,
        packaging="tar.gz" if archive else "jar",
        classifier="plugin" if archive else "",
        place=place,
    )


LOCK = (_locked("a-1.jar", "kafka"), _locked("b-2.jar", "kafka"), _locked("p-3-plugin.tar.gz", "debezium"))


class Repository:
    """Serves files from memory and counts what was asked for; content or error can be replaced."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.content: dict[str, bytes] = dict(CONTENTS)
        self.error: OSError | None = None

    def fetch(self, download: Path, entry: Locked) -> Path:
        self.served.append(entry.file_name)
        if self.error is not None:
            raise self.error
        download.mkdir(parents=True, exist_ok=True)
        path = download / entry.file_name
        path.write_bytes(self.content[entry.file_name])
        return path


def test_sets_are_fetched_once_and_archives_unpacked(tmp_path: Path) -> None:
    repository = Repository()

    first = provide_sets(tmp_path, LOCK, repository.fetch, print)
    second = provide_sets(tmp_path, LOCK, repository.fetch, print)

    assert first == second
    assert sorted(repository.served) == sorted(CONTENTS)
    assert (first["kafka"] / "a-1.jar").read_bytes() == b"aaa"
    assert (first["debezium"] / "plugin" / "inner.jar").read_bytes() == b"inner"


def test_a_damaged_file_makes_its_set_anew_and_no_other(tmp_path: Path) -> None:
    repository = Repository()
    folders = provide_sets(tmp_path, LOCK, repository.fetch, print)
    (folders["kafka"] / "b-2.jar").write_bytes(b"")
    repository.served.clear()

    provide_sets(tmp_path, LOCK, repository.fetch, print)

    assert sorted(repository.served) == ["a-1.jar", "b-2.jar"]
    assert (folders["kafka"] / "b-2.jar").read_bytes() == b"bb"


def test_a_file_with_another_hash_is_never_used(tmp_path: Path) -> None:
    repository = Repository()
    repository.content["a-1.jar"] = b"evil"

    with pytest.raises(UnavailableError, match=r"g:a:1: what was fetched does not match artifacts\.lock"):
        provide_sets(tmp_path, LOCK[:1], repository.fetch, print)

    assert not list(tmp_path.rglob("a-1.jar"))


def test_no_network_says_what_was_wanted_and_that_it_is_only_for_the_first_run(tmp_path: Path) -> None:
    repository = Repository()
    repository.error = ConnectionError("unreachable")

    with pytest.raises(UnavailableError, match=r"could not fetch g:a:1 .* needed only for the first run"):
        provide_sets(tmp_path, LOCK[:1], repository.fetch, print)

    assert len(repository.served) == 3


def test_a_full_disk_is_said_at_once(tmp_path: Path) -> None:
    repository = Repository()
    repository.error = OSError(errno.ENOSPC, "no space")

    with pytest.raises(UnavailableError, match="the disk filled up while g:a:1 was fetched: free space in"):
        provide_sets(tmp_path, LOCK[:1], repository.fetch, print)

    assert len(repository.served) == 1


def test_too_little_space_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"a local stack needs \d+ MiB free .* or set WAYBILL_HOME"):
        check_space(tmp_path, 1 << 62, "a local stack")


def test_a_changed_lock_makes_a_new_set(tmp_path: Path) -> None:
    repository = Repository()

    before = provide_sets(tmp_path, LOCK[:1], repository.fetch, print)
    after = provide_sets(tmp_path, LOCK[:2], repository.fetch, print)

    assert before["kafka"] != after["kafka"]


def test_the_shipped_lock_is_in_the_form_the_command_writes() -> None:
    entries = read_lock()

    assert parse_lock(lock_text(entries)) == entries
    assert {entry.place for entry in entries} == {"kafka", "debezium", "registry"}
    assert all(len(bytes.fromhex(entry.sha256)) == 32 and entry.size > 0 for entry in entries)


def test_the_shipped_lock_has_one_version_of_kafka() -> None:
    """A client jar older than the broker's starts, and then fails in ways that look like the network."""
    assert {entry.version for entry in read_lock() if entry.group == "org.apache.kafka"} == {"4.4.0"}


def test_a_broken_lock_line_is_named() -> None:
    with pytest.raises(ConfigError, match=r"artifacts\.lock line 2: expected sha256, bytes,"):
        parse_lock("# head\nabc 12 g:a:1\n")


def test_passwords_of_an_external_stack_are_all_asked_for() -> None:
    text = "# roles\npostgres=a\nwaybill_app = b=c\nwaybill_relay=d\n"

    with pytest.raises(ConfigError, match="no password for waybill_worker"):
        parse_passwords(text)
    with pytest.raises(ConfigError, match="line 1: expected ROLE=PASSWORD"):
        parse_passwords("postgres")
    assert parse_passwords(text + "waybill_worker=e\n")["waybill_app"] == "b=c"
