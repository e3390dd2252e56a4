"""Remove each guard of a promise in a copy of the checkout, and see the test that must notice.

A test that passes with the guarded line gone proves nothing. `tests/guards/*.toml` names, for each guard, the file,
the exact text to take out (or what to put in its place), the test that must then fail, and the requirements it
keeps. The test must pass on the untouched copy first; text that is not there, or there twice, is refused, so a guard
cannot go stale unnoticed. All of them take about half an hour: `--part 2/6` tries every sixth, from the second on.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "tests" / "guards"
#: What a test run reads; the environment and the caches are shared with the checkout.
COPIED: Final = (
    "services",
    "topics",
    "avro",
    "connect",
    "tests",
    "docs",
    "tools",
    "Makefile",
    "pyproject.toml",
    "README.md",
)
TESTS_FAILED: Final = 1


@dataclass(frozen=True, kw_only=True)
class Guard:
    """One line that keeps a promise, and the test that must miss it."""

    name: str
    file: str
    remove: str
    test: str
    #: What stands there instead; nothing by default.
    replace: str = ""
    #: Requirements that are broken without it.
    keeps: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What happened when one guard was removed."""

    name: str
    test: str
    verdict: str
    ok: bool
    seconds: float


def load_guards(folder: Path = FOLDER) -> list[Guard]:
    """Read every guard; raises TypeError for a key nobody knows."""
    files = sorted(folder.glob("*.toml"))
    return [Guard(**entry) for file in files for entry in tomllib.loads(file.read_text())["guard"]]


def problems(guard: Guard, root: Path = ROOT) -> list[str]:
    """Return why a guard cannot be tried: text gone or there twice, no such test."""
    file, (test_file, _, test_name) = root / guard.file, guard.test.partition("::")
    if not file.is_file():
        return [f"{guard.file} does not exist"]
    found = []
    if (times := file.read_text().count(guard.remove)) != 1:
        found.append(f"the text is {times} times in {guard.file}, must be there once")
    name = test_name.rsplit("::", 1)[-1].partition("[")[0]
    defined = re.compile(rf"^\s*((async )?def {name}\(|class {name}\b|{name} = )", re.MULTILINE)
    if not (root / test_file).is_file() or not defined.search((root / test_file).read_text()):
        found.append(f"{guard.test} does not exist")
    return found


def copy_checkout(target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        elif source.exists():
            shutil.copy(source, target / name)


def environment(copy: Path) -> dict[str, str]:
    """Return an environment in which `import waybill` finds the copy, and downloads are those of the checkout."""
    return {
        **os.environ,
        "PYTHONPATH": str(copy / "services"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "WAYBILL_HOME": os.environ.get("WAYBILL_HOME", str(ROOT / ".waybill")),
    }


def runs_the_copy(copy: Path) -> bool:
    command = [sys.executable, "-c", "import waybill; print(waybill.__file__)"]
    told = subprocess.run(command, env=environment(copy), cwd=copy, capture_output=True, text=True, check=True)
    return Path(told.stdout.strip()).is_relative_to(copy)


def run_tests(copy: Path, *tests: str) -> tuple[int, str]:
    command = [
        str(Path(sys.executable).parent / "pytest"),
        "-q",
        "-x",
        "-p",
        "no:randomly",
        *tests,
    ]
    done = subprocess.run(command, env=environment(copy), cwd=copy, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def try_guard(guard: Guard, copy: Path, passing: set[str]) -> Verdict:
    """Try one guard in the copy and leave the copy as it was; `passing` has the tests seen to pass untouched."""
    began = time.monotonic()

    def verdict(text: str, *, ok: bool = False) -> Verdict:
        return Verdict(
            name=guard.name, test=guard.test, verdict=text, ok=ok, seconds=round(time.monotonic() - began, 1)
        )

    if found := problems(guard):
        return verdict("; ".join(found))
    if guard.test not in passing:
        status, said = run_tests(copy, guard.test)
        if status:
            return verdict(f"the test does not pass with the guard in place: {said.strip().splitlines()[-1]}")
        passing.add(guard.test)
    file = copy / guard.file
    original = file.read_text()
    file.write_text(original.replace(guard.remove, guard.replace))
    try:
        status, said = run_tests(copy, guard.test)
    finally:
        file.write_text(original)
    if status == TESTS_FAILED:
        return verdict("fails without the guard", ok=True)
    if status == 0:
        return verdict("STILL PASSES without the guard")
    return verdict(f"did not run without the guard: {said.strip().splitlines()[-1]}")


def tried(guards: list[Guard]) -> Iterator[Verdict]:
    with tempfile.TemporaryDirectory(prefix="waybill-guards-") as folder:
        copy = Path(folder)
        copy_checkout(copy)
        if not runs_the_copy(copy):
            sys.exit("the copy's code is not what runs; is another waybill first on the path?")
        tests = {guard.test for guard in guards if not problems(guard)}
        passing = tests if not run_tests(copy, *sorted(tests))[0] else set()
        for guard in guards:
            yield try_guard(guard, copy, passing)


def chosen_guards(words: list[str], part: str) -> list[Guard]:
    """Return the guards one of the words speaks of, all without words; of those every n-th."""
    guards = [
        guard
        for guard in load_guards()
        if not words or any(word in guard.name or word in guard.test or word in guard.keeps for word in words)
    ]
    number, _, count = part.partition("/")
    return guards[int(number) - 1 :: int(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Remove each guard in a copy and see its test fail.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--only", nargs="*", default=[], help="a part of the name or test, or a requirement's number")
    parser.add_argument("--part", default="1/1", help="2/6: every sixth of them, from the second on")
    chosen = parser.parse_args()
    guards = chosen_guards(chosen.only, chosen.part)
    verdicts = []
    for verdict in tried(guards):
        verdicts.append(verdict)
        mark = "ok  " if verdict.ok else "BAD "
        print(
            f"{mark} {verdict.name}: {verdict.verdict} ({verdict.seconds} s)",
            file=sys.stderr if chosen.json else sys.stdout,
        )
    failed = [verdict for verdict in verdicts if not verdict.ok]
    if chosen.json:
        print(json.dumps({"ok": not failed, "guards": [asdict(verdict) for verdict in verdicts]}, indent=2))
    else:
        print(f"{len(verdicts) - len(failed)} of {len(verdicts)} guards are noticed when they are gone")
    return 1 if failed or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
