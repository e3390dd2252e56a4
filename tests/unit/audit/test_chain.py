"""Whatever is changed in a chain, up to its newest anchor, is found."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from waybill.audit import Anchor, Entry, Fault, public_keys, sign_anchor, signed_by, verify
from waybill.audit.core.chain import GENESIS, link
from waybill.audit.core.lines import read_line, write_line
from waybill.cli.app import root
from waybill.crypto.keyring import ensure_signing, rotate_signing
from waybill.crypto.keys import jwks_path
from waybill.kernel.ids import Tenant

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACME = Tenant("acme")


def chain(length: int, partition: int = -1, tenant: str = "acme") -> list[Entry]:
    entries: list[Entry] = []
    for number in range(1, length + 1):
        body = json.dumps({"act": "access.event.insert", "by": "ann", "row": {"n": number}})
        entry = Entry(tenant=tenant, partition=partition, number=number, body=body, hash="")
        entries.append(replace(entry, hash=link(entry, entries[-1].hash if entries else GENESIS)))
    return entries


def again(entries: list[Entry]) -> list[Entry]:
    """Hash entries anew, as somebody would who may write the whole table."""
    made: list[Entry] = []
    for number, entry in enumerate(entries, start=1):
        moved = replace(entry, number=number)
        made.append(replace(moved, hash=link(moved, made[-1].hash if made else GENESIS)))
    return made


def at(entry: Entry) -> Anchor:
    """Return an anchor of an entry; these tests believe every anchor."""
    return Anchor(
        tenant=entry.tenant,
        partition=entry.partition,
        number=entry.number,
        hash=entry.hash,
        at=0,
        key="k",
        signature="",
    )


def faults(entries: list[Entry], anchors: list[Anchor]) -> set[Fault]:
    return {finding.fault for finding in verify(entries, anchors, lambda _: True).findings}


WHOLE = chain(6)
#: Chains stored one after the other, as they are exported.
BOTH = [*WHOLE, *chain(4, partition=2)]


def test_an_untouched_chain_is_intact_and_says_how_far_it_is_anchored() -> None:
    report = verify(BOTH, [at(WHOLE[2]), at(WHOLE[4])], lambda _: True)

    assert report.findings == ()
    assert {key: (head.number, head.anchored) for key, head in report.heads.items()} == {
        ("acme", -1): (6, 5),
        ("acme", 2): (4, 0),
    }


def test_the_hash_is_the_one_of_the_form_that_is_written_down() -> None:
    """The same value is asked of the database in the integration test of the chain."""
    entry = Entry(tenant="acme", partition=-1, number=1, body='{"act": "é"}', hash="")

    assert link(entry, GENESIS) == "98f2eb820c99a37a1a4b9b38988942287068c9817998648f31087d1d5981e8ef"


CHANGES: dict[str, tuple[list[Entry], set[Fault]]] = {
    "edited": ([WHOLE[0], replace(WHOLE[1], body="{}"), *WHOLE[2:]], {Fault.CHANGED}),
    "edited with its hash": (
        [WHOLE[0], replace(x := replace(WHOLE[1], body="{}"), hash=link(x, WHOLE[0].hash)), *WHOLE[2:]],
        {Fault.CHANGED},
    ),
    "first removed": (WHOLE[1:], {Fault.CHANGED, Fault.OUT_OF_ORDER}),
    "removed": ([*WHOLE[:2], *WHOLE[3:]], {Fault.CHANGED, Fault.OUT_OF_ORDER}),
    "swapped": ([WHOLE[1], WHOLE[0], *WHOLE[2:]], {Fault.CHANGED, Fault.OUT_OF_ORDER}),
    "doubled": ([*WHOLE[:2], WHOLE[1], *WHOLE[2:]], {Fault.CHANGED, Fault.OUT_OF_ORDER}),
    "moved to another tenant": ([replace(each, tenant="other") for each in WHOLE], {Fault.CHANGED, Fault.CUT_OFF}),
    "tail cut": (WHOLE[:-1], {Fault.CUT_OFF}),
    "all removed": ([], {Fault.CUT_OFF}),
    "removed and hashed anew": (again([*WHOLE[:2], *WHOLE[3:]]), {Fault.CUT_OFF}),
    "edited and hashed anew": (again([replace(WHOLE[0], body="{}"), *WHOLE[1:]]), {Fault.REWRITTEN}),
    "inserted and hashed anew": (again([*WHOLE[:2], WHOLE[0], *WHOLE[2:]]), {Fault.REWRITTEN}),
}


@pytest.mark.requirement("HS-7")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_found(name: str) -> None:
    changed, expected = CHANGES[name]

    assert faults(changed, [at(WHOLE[-1])]) == expected


def test_what_came_after_the_newest_anchor_can_be_cut_off_unseen_and_nothing_before_it() -> None:
    anchors = [at(WHOLE[3])]

    assert [bool(faults(WHOLE[:length], anchors)) for length in (6, 5, 4, 3)] == [False, False, False, True]


def test_an_anchor_that_nobody_signed_vouches_for_nothing() -> None:
    report = verify(WHOLE[:2], [at(WHOLE[-1])], lambda _: False)

    assert [finding.fault for finding in report.findings] == [Fault.UNSIGNED]
    assert report.heads["acme", -1].anchored == 0


#: Made once: keys, and an anchor at the end of each chain, kept elsewhere.
@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, list[Anchor]]:
    folder = tmp_path_factory.mktemp("export")
    ensure_signing(folder, ACME, NOW)
    anchors = [sign_anchor(folder, entry, NOW) for entry in (WHOLE[-1], BOTH[-1])]
    lines = "".join(write_line(item) + "\n" for item in [*BOTH, *anchors])
    (folder / "anchors").write_text("".join(write_line(anchor) + "\n" for anchor in anchors))
    return folder, lines.encode(), anchors


def look(folder: Path, content: bytes) -> Any:
    (folder / "export").write_bytes(content)
    words = ["audit", "verify", "--file", str(folder / "export"), "--anchors", str(folder / "anchors"), "--json"]
    done = CliRunner().invoke(root, [*words, "--keys", str(jwks_path(folder, ACME))])
    assert done.exit_code in {0, 1}, done.output
    assert json.loads(done.stdout)["intact"] == (done.exit_code == 0)
    return done.exit_code


def test_an_export_as_it_was_written_is_intact(export: tuple[Path, bytes, list[Anchor]]) -> None:
    assert look(*export[:2]) == 0


@pytest.mark.requirement("HS-7")
@given(data=st.data())
def test_one_changed_byte_of_an_export_is_found(export: tuple[Path, bytes, list[Anchor]], data: st.DataObject) -> None:
    folder, content, _ = export
    place = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != content[place]))

    assert look(folder, content[:place] + bytes([byte]) + content[place + 1 :]) == 1


@given(data=st.data())
def test_one_byte_more_or_less_is_found(export: tuple[Path, bytes, list[Anchor]], data: st.DataObject) -> None:
    folder, content, _ = export
    place = data.draw(st.integers(0, len(content) - 1))
    more = data.draw(st.binary(max_size=1))

    assert look(folder, content[:place] + more + content[place + (not more) :]) == 1


@given(data=st.data())
def test_a_line_of_an_entry_removed_or_moved_is_found(
    export: tuple[Path, bytes, list[Anchor]], data: st.DataObject
) -> None:
    folder, content, _ = export
    lines = content.splitlines(keepends=True)
    taken = data.draw(st.integers(0, len(BOTH) - 1))
    rest = [*lines[:taken], *lines[taken + 1 :]]
    to = data.draw(st.none() | st.integers(0, len(BOTH) - 1).filter(lambda place: is_moved(taken, place)))
    changed = rest if to is None else [*rest[:to], lines[taken], *rest[to:]]

    assert look(folder, b"".join(changed)) == 1


def is_moved(taken: int, to: int) -> bool:
    """Whether an entry passes another of its own chain: how chains are mixed in a file says nothing."""
    passed = BOTH[to:taken] if to < taken else BOTH[taken + 1 : to + 1]
    return any(entry.partition == BOTH[taken].partition for entry in passed)


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "moved to another tenant"])
def test_the_plain_script_finds_it_too(
    name: str, export: tuple[Path, bytes, list[Anchor]], tmp_path: Path, checkout: Path
) -> None:
    folder, content, _ = export
    anchors = [line for line in content.splitlines(keepends=True) if b'"kind":"anchor"' in line]
    changed = "".join(write_line(item) + "\n" for item in [*CHANGES[name][0], *BOTH[len(WHOLE) :]])
    (tmp_path / "export").write_bytes(changed.encode() + b"".join(anchors))
    (tmp_path / "whole").write_bytes(content)

    script = [sys.executable, "-I", "-S", str(checkout / "docs/examples/verify_audit.py")]
    codes = [
        subprocess.run([*script, str(tmp_path / file), str(folder / "anchors")], check=False).returncode
        for file in ("export", "whole")
    ]

    assert codes == [1, 0]


def test_a_signature_is_of_the_tenants_key_at_that_time(tmp_path: Path) -> None:
    ensure_signing(tmp_path, ACME, NOW)
    ensure_signing(tmp_path, Tenant("other"), NOW)
    rotate_signing(tmp_path, ACME, NOW + timedelta(days=1))
    later = NOW + timedelta(days=3)
    first, second = sign_anchor(tmp_path, WHOLE[0], NOW), sign_anchor(tmp_path, WHOLE[1], later)
    is_signed = signed_by(public_keys(jwks_path(tmp_path, ACME)))

    assert (is_signed(first), is_signed(second), first.key != second.key) == (True, True, True)
    assert not signed_by(public_keys(jwks_path(tmp_path, Tenant("other"))))(first)
    for changed in (
        replace(first, number=2),
        replace(first, hash=WHOLE[1].hash),
        replace(first, partition=0),
        replace(first, at=int(later.timestamp())),
        replace(first, key=second.key),
        replace(first, signature=first.signature.upper()),
    ):
        assert not is_signed(changed)


@pytest.mark.parametrize(
    "line",
    ["", "[]", "null", '{"kind":"entry"}', '{"kind":"act"}', write_line(WHOLE[0]) + " ", write_line(WHOLE[0])[:-1] + ',"x":1}'],
)  # fmt: skip
def test_what_no_export_has_is_not_read(line: str) -> None:
    assert read_line(line) is None
    assert read_line(write_line(WHOLE[0])) == WHOLE[0]


@pytest.mark.parametrize(
    "words", [[], ["acme", "--file", "x"], ["--file", "x"], ["--file", "/nowhere/x", "--keys", "y"]]
)
def test_what_cannot_be_verified_is_said(words: list[str]) -> None:
    done = CliRunner().invoke(root, ["audit", "verify", *words])

    assert (
        "say what to verify" in str(done.exception)
        or "--keys" in str(done.exception)
        or "/nowhere/x" in str(done.exception)
    )
