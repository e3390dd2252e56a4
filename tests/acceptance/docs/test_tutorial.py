"""The pages are followed by copy and paste: every `bash` block, in order, in one shell that stops at the first error."""

import contextlib
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Blocks of nothing but targets that bring the environment, or run this test.
MAKE_ONLY = re.compile(r"(make (demo|test)\n)+")
TIME_S = 600


def script_of(page: Path) -> str:
    """Return the page's blocks as one script that says where it is."""
    text = page.read_text()
    blocks = [
        (text.count("\n", 0, found.start()) + 2, found[1])
        for found in BLOCK.finditer(text)
        if not MAKE_ONLY.fullmatch(found[1])
    ]
    assert blocks
    return "set -euo pipefail\n" + "".join(f"echo '--- {page.name}:{line}' >&2\n{block}" for line, block in blocks)


@pytest.fixture
def shell(tmp_path: Path, checkout: Path) -> Iterator[dict[str, str]]:
    """An ordinary person's environment: an empty home, a stack of their own; what they leave behind is wiped."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    env = {**kept, "HOME": str(tmp_path), "WAYBILL_STACK": f"page-{uuid.uuid4().hex[:8]}", "TERM": "dumb"}
    yield env
    wipe = [str(checkout / ".venv" / "bin" / "waybill"), "dev", "reset", "--name", env["WAYBILL_STACK"]]
    subprocess.run(wipe, cwd=checkout, env=env, capture_output=True, timeout=120, check=False)


def follow(script: str, checkout: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run the script from the checkout; whatever it left running in its session is ended."""
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=checkout,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=TIME_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said


@pytest.mark.stack
@pytest.mark.timeout(TIME_S + 150)
@pytest.mark.parametrize("page", ["docs/tutorial.md", "README.md"])
def test_page_is_followed_by_copy_and_paste(page: str, checkout: Path, shell: dict[str, str]):
    status, said = follow(script_of(checkout / page), checkout, shell)

    assert status == 0, said[-6000:]
