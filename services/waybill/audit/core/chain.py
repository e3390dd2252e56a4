"""Entries of a chain, each bound to the one before it, and what a look through them finds.

An entry is hashed with its place and the hash before it, so that whoever changes, removes, moves or inserts one has
to rewrite all that follow. Anchors, signed and kept elsewhere, say how far a chain had come and with which hash: they
show that its end was cut off, or that all of it was written anew. What came after the newest anchor can be cut off
unseen: anchor often.

Only the standard library is used here.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["GENESIS", "Anchor", "ChainKey", "Entry", "Fault", "Finding", "Head", "Report", "link", "verify"]

#: The hash before the first entry.
GENESIS: Final = "0" * 64
_FORMAT: Final = "waybill.audit.v1"

ChainKey = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One act, where it stands in its chain."""

    tenant: str
    #: Of `commands`; -1 for acts that are about none.
    partition: int
    #: From 1, without a hole.
    number: int
    #: JSON, exactly as it was hashed.
    body: str
    #: SHA-256, hexadecimal.
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A statement that a chain had come so far, signed by the tenant's key."""

    tenant: str
    partition: int
    number: int
    hash: str
    #: Unix seconds.
    at: int
    #: The id of the key that signed.
    key: str
    #: Ed25519, hexadecimal; over all of the above.
    signature: str

    def statement(self) -> bytes:
        """Return what the signature is over; no signed delivery begins like that."""
        parts = (f"{_FORMAT}.anchor", self.tenant, self.partition, self.number, self.hash, self.at, self.key)
        return "\n".join(map(str, parts)).encode()


class Fault(StrEnum):
    """What is wrong at one place."""

    #: The entry is not the one that was hashed, or it does not follow the one before it.
    CHANGED = "changed"
    #: A number is missing, repeated or out of order.
    OUT_OF_ORDER = "out_of_order"
    #: An anchor names an entry beyond the end.
    CUT_OFF = "cut_off"
    #: An anchor names another hash than the entry has: the chain was written anew.
    REWRITTEN = "rewritten"
    #: An anchor that the tenant's key did not sign.
    UNSIGNED = "unsigned"
    #: A line of an export that no export has.
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault and where it is."""

    fault: Fault
    tenant: str
    partition: int
    #: Of the entry; of the line for what cannot be read.
    number: int


@dataclass(slots=True, kw_only=True)
class Head:
    """How far a chain goes, and how far anchors vouch for that."""

    number: int = 0
    hash: str = GENESIS
    #: The newest entry that an anchor names.
    anchored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a look through chains gave."""

    heads: dict[ChainKey, Head]
    findings: tuple[Finding, ...]


def link(entry: Entry, before: str) -> str:
    """Return the hash an entry must have behind the one whose hash is `before`."""
    parts = (_FORMAT, entry.tenant, str(entry.partition), str(entry.number), before, entry.body)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def verify(entries: Iterable[Entry], anchors: Iterable[Anchor], is_signed: Callable[[Anchor], bool]) -> Report:
    """Look through chains.

    Args:
        entries: in the order in which they are stored; chains may be mixed.
        anchors: from wherever they were kept.
        is_signed: whether an anchor was signed by its tenant's key.

    Returns:
        Every fault, where it shows; none when nothing was changed up to the newest anchor of each chain.
    """
    believed: dict[ChainKey, dict[int, set[str]]] = {}
    findings: list[Finding] = []
    for anchor in anchors:
        if is_signed(anchor):
            named = believed.setdefault((anchor.tenant, anchor.partition), {})
            named.setdefault(anchor.number, set()).add(anchor.hash)
        else:
            findings.append(_at(Fault.UNSIGNED, (anchor.tenant, anchor.partition), anchor.number))
    heads: dict[ChainKey, Head] = {chain: Head() for chain in believed}
    for entry in entries:
        chain = (entry.tenant, entry.partition)
        head = heads.setdefault(chain, Head())
        findings.extend(_judge(entry, head, believed.get(chain, {}).get(entry.number, set())))
        head.number, head.hash = entry.number, entry.hash
    for chain, named in believed.items():
        heads[chain].anchored = max(named)
        findings.extend(_at(Fault.CUT_OFF, chain, number) for number in sorted(named) if number > heads[chain].number)
    return Report(heads=heads, findings=tuple(findings))


def _judge(entry: Entry, head: Head, named: set[str]) -> Iterator[Finding]:
    chain = (entry.tenant, entry.partition)
    if entry.number != head.number + 1:
        yield _at(Fault.OUT_OF_ORDER, chain, entry.number)
    if entry.hash != link(entry, head.hash):
        yield _at(Fault.CHANGED, chain, entry.number)
    if named - {entry.hash}:
        yield _at(Fault.REWRITTEN, chain, entry.number)


def _at(fault: Fault, chain: ChainKey, number: int) -> Finding:
    return Finding(fault=fault, tenant=chain[0], partition=chain[1], number=number)
