"""Run the tests: what only computes beside what waits for a real stack. With arguments it is pytest with them.

The tests of single units and of the house need no stack, and keep a core busy for minutes; the others mostly wait for
brokers, databases and listeners. So they run side by side, the former at a lower priority: what is timed does not wait
for them. Their report follows when both have ended.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

PYTEST = (str(Path(sys.executable).with_name("pytest")),)
#: What needs no stack.
QUICK = ("tests/house", "tests/unit")
_LOWER_PRIORITY = 5


def main(arguments: Sequence[str]) -> int:
    """Return 0 when every test passed, otherwise pytest's exit code."""
    if arguments:
        return subprocess.call([*PYTEST, *arguments])
    with tempfile.TemporaryFile("w+") as report:
        quick = subprocess.Popen(
            ["nice", "-n", str(_LOWER_PRIORITY), *PYTEST, *QUICK], stdout=report, stderr=subprocess.STDOUT
        )
        try:
            rest_code = subprocess.call([*PYTEST, *(f"--ignore={folder}" for folder in QUICK)])
            quick_code = quick.wait()
        finally:
            quick.terminate()  # an interrupted run leaves nothing behind; it ended long ago otherwise
            quick.wait()
        _tell(report, is_ok=quick_code == 0)
    return rest_code or quick_code


def _tell(report: IO[str], *, is_ok: bool) -> None:
    """Print the report of what ran beside: all of it where something failed, else how it ended."""
    report.seek(0)
    text = report.read()
    ending = text.rfind("slowest") if is_ok else -1
    print(f"\n{' and '.join(QUICK)}, beside the tests above:")
    print(text if ending < 0 else text[text.rfind("\n", 0, ending) :].strip(), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
