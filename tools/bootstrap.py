#!/usr/bin/env python3
"""Make `.venv/` from `uv.lock`, with nothing on the machine but Python 3.11 and make.

What it keeps: the environment is exactly the locked one; everything it writes is under `.venv/` and `.waybill/`;
a second run with nothing changed touches neither the network nor the disk; a failure says what to do in one
paragraph. It runs before anything is installed, so it is standard library only and has to parse under an old
Python in order to say that it is too old.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".waybill"
VENV = ROOT / ".venv"
STAMP = VENV / "locked-as.json"

OLDEST_PYTHON = (3, 11)
#: Installed when no usable uv is found, and the oldest one that reads the lock file as it is.
UV_VERSION = "0.13.9"
#: The environment, the packages' archives beside it, and the stack's jars, as measured, with room to work.
NEEDED_FREE_MB = 2500

NETWORK_SIGNS = (
    "dns error", "failed to lookup address", "name resolution", "could not connect", "connection refused", "connect error",
    "error sending request", "failed to fetch", "network is unreachable", "no route to host", "timed out",
    "no matching distribution", "newconnectionerror", "proxyerror",
)  # fmt: skip
DISK_SIGNS = ("no space left on device", "os error 28", "disk quota exceeded")


class Stop(Exception):
    """Set-up cannot go on; the text says what to do."""


def say(text):
    """Print one line of progress; stderr, so that the command that follows owns stdout."""
    print("set-up: " + text, file=sys.stderr, flush=True)


def check_python():
    """Go on under a new enough Python, looking for one by its usual names when this one is not."""
    if sys.version_info >= OLDEST_PYTHON:
        return
    this = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for minor in (14, 13, 12, 11):
        found = shutil.which(f"python3.{minor}")
        if found:
            say(f"this is Python {this}, going on with {found}")
            os.execv(found, [found, *sys.argv])
    raise Stop(
        f"Waybill needs Python 3.11 or newer; {sys.executable} is {this}. Install one (Debian, Ubuntu:"
        " `apt-get install python3.11`) and name it: `make PYTHON=python3.11 setup`."
    )


def fingerprint():
    """Return what the environment depends on: lock, project tables, interpreter and place (scripts hold the path)."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tool = project.get("tool", {})
    parts = [project.get(key) for key in ("build-system", "project", "dependency-groups")]
    parts += [tool.get("uv"), tool.get("hatch")]
    text = json.dumps(parts, sort_keys=True) + (ROOT / "uv.lock").read_text(encoding="utf-8")
    return {
        "lock": hashlib.sha256(text.encode()).hexdigest(),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "place": str(ROOT),
    }


def is_current(wanted):
    """Tell whether the last complete set-up made exactly this environment and it still starts."""
    try:
        made = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return made == wanted and os.access(VENV / "bin" / "waybill", os.X_OK) and (VENV / "bin" / "python").exists()


def check_writable():
    """Refuse early what would fail half-way: a folder of somebody else, or a full disk."""
    for folder in (HOME, VENV):
        there = folder if folder.exists() else ROOT
        if not os.access(there, os.W_OK):
            raise Stop(
                f"{there} is not writable for this user (was it made by another one, or by root?). Make it yours"
                f" (`chown -R $(id -u) {there}`), or work in a clone of your own."
            )
    free_mb = shutil.disk_usage(ROOT).free // (1024 * 1024)
    if free_mb < NEEDED_FREE_MB and not VENV.exists():
        raise Stop(
            f"only {free_mb} MB are free in {ROOT}; the first set-up needs about {NEEDED_FREE_MB} MB. Free some"
            " space, or move the checkout to another disk."
        )


def environment():
    """Return the environment for uv and pip: caches inside the project, the caller's settings otherwise kept."""
    env = dict(os.environ)
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT", "UV_PYTHON"):
        env.pop(name, None)
    env.update(
        UV_CACHE_DIR=str(HOME / "cache" / "uv"),
        UV_PROJECT_ENVIRONMENT=str(VENV),
        UV_PYTHON_DOWNLOADS="never",
        UV_NO_PROGRESS="" if sys.stderr.isatty() else "1",
        PIP_CACHE_DIR=str(HOME / "cache" / "pip"),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    if not env["UV_NO_PROGRESS"]:
        del env["UV_NO_PROGRESS"]
    if not os.access(env.get("HOME", ""), os.W_OK):
        env["HOME"] = str(HOME)  # an ordinary user without a home of their own
    return env


def run(command, env):
    """Run a tool, pass its output on as it comes, and return (exit status, what it said)."""
    said = []
    process = subprocess.Popen(command, env=env, cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for raw in iter(process.stdout.readline, b""):
        line = raw.decode("utf-8", "replace").rstrip()
        said.append(line)
        print("  " + line, file=sys.stderr, flush=True)
    return process.wait(), "\n".join(said[-60:])


def explain(step, said):
    """Turn a tool's failure into what to do about it."""
    low = said.lower()
    if any(sign in low for sign in DISK_SIGNS):
        raise Stop(
            f"{step}: the disk is full. Free about {NEEDED_FREE_MB} MB in {ROOT} and run the same command again."
        )
    if any(sign in low for sign in NETWORK_SIGNS):
        raise Stop(
            f"{step}: the package index cannot be reached. Only the first run needs the network. Connect this machine,"
            " or name your proxy (HTTPS_PROXY) or mirror (PIP_INDEX_URL, UV_DEFAULT_INDEX), and run the same command"
            " again; what was already fetched is kept in .waybill/cache."
        )
    raise Stop(f"{step} failed; the lines above are all that is known. After mending it, run the same command again.")


def version_of(uv):
    """Return the version tuple of a uv executable, or None when it does not run."""
    try:
        told = subprocess.run([uv, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
        return tuple(int(part) for part in told.split()[1].split(".")[:3])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def find_uv(env):
    """Return a uv that reads our lock: our own copy, the machine's, or one installed now by pip."""
    oldest = tuple(int(part) for part in UV_VERSION.split("."))
    own = HOME / "uv" / "bin" / "uv"
    for candidate in (str(own), shutil.which("uv")):
        version = version_of(candidate) if candidate else None
        if version is not None and version >= oldest:
            return candidate
    say(f"installing uv {UV_VERSION} into .waybill/uv")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(HOME / "uv")],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    if made.returncode:
        if any(sign in (made.stdout + made.stderr).lower() for sign in DISK_SIGNS):
            explain("making a virtual environment", made.stdout + made.stderr)
        raise Stop(
            f"`{sys.executable} -m venv` does not work here, and there is no uv {UV_VERSION} or newer. Install one of the two: the venv module"
            " (Debian, Ubuntu: `apt-get install python3-venv`) or uv, then run the same command again."
        )
    pip = [
        str(HOME / "uv" / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--retries",
        "1",
        "--progress-bar",
        "off",
        "uv==" + UV_VERSION,
    ]
    status, said = run(pip, env)
    if status:
        explain("installing uv", said)
    return str(own)


def sync(uv, env):
    """Bring `.venv/` to the lock; without network, from the cache alone when that is enough."""
    command = [uv, "sync", "--frozen", "--extra", "all", "--python", sys.executable]
    status, said = run(command, env)
    if status and any(sign in said.lower() for sign in NETWORK_SIGNS):
        say("no network: trying with what is in the cache")
        status, _ = run([*command, "--offline"], env)
    if status:
        explain("installing the locked packages", said)


def main():
    """Set up, or find that nothing is to be done."""
    check_python()
    wanted = fingerprint()
    if is_current(wanted):
        return
    check_writable()
    HOME.mkdir(exist_ok=True)
    with (HOME / "bootstrap.lock").open("w") as turn:  # two makes at once: the second waits, then finds it done
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_current(wanted):
            return
        env = environment()
        uv = find_uv(env)
        say("installing the locked packages into .venv (minutes the first time, seconds afterwards)")
        sync(uv, env)
        STAMP.write_text(json.dumps(wanted), encoding="utf-8")
        say("ready: .venv/bin/waybill")


if __name__ == "__main__":
    try:
        main()
    except Stop as stop:
        sys.exit(f"set-up stopped: {stop}")
    except OSError as error:
        sys.exit(f"set-up stopped: {error}. Mend that and run the same command again.")
    except KeyboardInterrupt:
        sys.exit("set-up interrupted: run the same command again, it goes on where it was")
