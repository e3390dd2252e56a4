"""Verify an export of `waybill audit export` with nothing but Python: `python verify_audit.py EXPORT [ANCHORS]`.

It checks every entry against the one before it, and the chains against their anchors. It does not check who signed
the anchors (Python brings no Ed25519): take those in ANCHORS from the topic yourself, or let `waybill audit verify`
check the signatures too.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def faults(paths: list[str]) -> Iterator[str]:
    """Yield what is wrong in the files, read one after the other."""
    last: dict[Any, tuple[str, int]] = {}
    hashes: dict[Any, str] = {}
    anchors: list[tuple[Any, int, str]] = []
    for path in paths:
        with Path(path).open(encoding="utf-8", newline="\n") as lines:
            for place, line in enumerate(lines, start=1):
                try:
                    item = json.loads(line)
                    kind, chain = item.pop("kind"), (item["tenant"], item["partition"])
                    written = json.dumps({"kind": kind, **item}, separators=(",", ":")) + "\n"
                    number, stated = item["number"], item["hash"]
                    if written != line or kind not in {"entry", "anchor"}:
                        raise ValueError
                except (ValueError, KeyError, TypeError, AttributeError):
                    yield f"{path}:{place} is no line of an export"
                    continue
                if kind == "anchor":
                    anchors.append((chain, number, stated))
                    continue
                before, follows = last.get(chain, ("0" * 64, 1))
                parts = ("waybill.audit.v1", *map(str, chain), str(number), before, str(item.get("body")))
                if number != follows:
                    yield f"{chain} {number}: {follows} was to come"
                if hashlib.sha256("\n".join(parts).encode()).hexdigest() != stated:
                    yield f"{chain} {number} was changed, or does not follow"
                last[chain], hashes[chain, number] = (stated, number + 1), stated
    for chain, number, stated in anchors:
        if hashes.get((chain, number)) != stated:
            yield f"{chain} {number} is not what an anchor says: cut off or written anew"


if __name__ == "__main__":
    try:
        found = list(faults(sys.argv[1:]))
    except UnicodeError as error:
        found = [f"not UTF-8: {error}"]
    sys.stdout.write(("\n".join(found) or "nothing was changed up to the last anchor") + "\n")
    sys.exit(bool(found))
