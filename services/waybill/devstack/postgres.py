"""Runs the stack's PostgreSQL: as another user where the launcher is root, in folders that user can reach.

PostgreSQL refuses to run as root. The launcher then makes (or takes) the account `waybill`, else uses `nobody`.
That account must be able to reach the programs and the data: where a folder above them is closed to others (a
project under a home folder with mode 0700), both are placed under `/var/tmp/waybill-<digest of the stack folder>`
instead, and nothing of the user's own folders is opened up. As an ordinary user everything stays in the stack's
folder.
"""

import hashlib
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import psycopg
from psycopg import sql

from waybill.devstack import processes
from waybill.devstack.plan import DATABASES, LOGIN_ROLES, postgres_command
from waybill.devstack.processes import Account
from waybill.devstack.stack import Stack
from waybill.kernel.errors import UnavailableError

__all__ = ["Cluster", "cluster_for", "forget", "prepare_roles", "start"]

ACCOUNT_NAME: Final = "waybill"
FALLBACK_NAME: Final = "nobody"
RELOCATED: Final = Path("/var/tmp")  # noqa: S108 - a name only root can have made is checked before use

ROLE_NAMES: Final = "SELECT rolname FROM pg_roles"
DATABASE_NAMES: Final = "SELECT datname FROM pg_database"
#: Held while roles and databases are made: a killed launcher's last statement still runs in the server.
ONE_LAUNCHER: Final = "SELECT pg_advisory_lock(hashtext('waybill.devstack'))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One data folder, the programs that serve it and the account they run as; None is the caller's own."""

    data: Path
    binaries: Path
    account: Account | None


def cluster_for(folder: Path, binaries: Path, progress: Callable[[str], None]) -> Cluster:
    """Decide where PostgreSQL of the stack in `folder` lives and who runs it; make its folder.

    Raises:
        UnavailableError: root has no account to run it as.
    """
    home = folder / "postgres"
    if os.geteuid() != 0:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Cluster(data=home / "data", binaries=binaries, account=None)
    account = _account()
    if not _reachable(binaries / "postgres", account) or not _reachable(folder, account):
        relocated = _relocated_folder(folder)
        if not relocated.exists():
            progress(f"PostgreSQL lives in {relocated}: its account cannot reach {folder}")
        relocated.mkdir(mode=0o755, exist_ok=True)
        status = relocated.lstat()
        if status.st_uid != 0 or not stat.S_ISDIR(status.st_mode):  # anybody may make names there
            raise UnavailableError(f"{relocated} is not root's own folder: remove it")
        relocated.chmod(0o755)
        if not _reachable(binaries / "postgres", account):
            binaries = _copied_programs(binaries, relocated)
        if not _reachable(folder, account):
            home = relocated / "postgres"
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, account.uid, account.gid)
    home.chmod(0o700)
    return Cluster(data=home / "data", binaries=binaries, account=account)


def forget(folder: Path) -> None:
    """Delete the cluster's data, wherever it was placed."""
    shutil.rmtree(folder / "postgres", ignore_errors=True)
    if os.geteuid() == 0:
        shutil.rmtree(_relocated_folder(folder), ignore_errors=True)


def _relocated_folder(folder: Path) -> Path:
    return RELOCATED / f"waybill-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def _copied_programs(binaries: Path, target: Path) -> Path:
    made = (binaries / "postgres").stat().st_mtime_ns
    copy = target / f"programs-{hashlib.sha256(f'{binaries}{made}'.encode()).hexdigest()[:12]}"
    if not copy.is_dir():
        draft = target / f".programs.{os.getpid()}"
        shutil.copytree(binaries.parent, draft, ignore=shutil.ignore_patterns("include"))
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        draft.rename(copy)
    return copy / "bin"


def _account() -> Account:
    try:
        entry = pwd.getpwnam(ACCOUNT_NAME)
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT_NAME]
        try:
            subprocess.run(command, check=True, capture_output=True)
            entry = pwd.getpwnam(ACCOUNT_NAME)
        except (OSError, subprocess.CalledProcessError, KeyError):
            try:
                entry = pwd.getpwnam(FALLBACK_NAME)
            except KeyError as error:
                raise UnavailableError(
                    "PostgreSQL does not run as root, and neither could the account `waybill` be made nor is there "
                    f"`nobody`: run as an ordinary user, or `{' '.join(command)}`"
                ) from error
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def _reachable(path: Path, account: Account) -> bool:
    """Whether the account may pass every folder above `path` (by mode bits: an access list is not believed)."""
    for folder in path.resolve().parents:
        status = folder.stat()
        if status.st_uid == account.uid:
            bit = 0o100
        elif status.st_gid == account.gid:
            bit = 0o010
        else:
            bit = 0o001
        if not status.st_mode & bit:
            return False
    return True


def start(stack: Stack, cluster: Cluster, log: Path) -> None:
    """Make the data folder when there is none, clear what a killed server left, and start the server."""
    if not (cluster.data / "PG_VERSION").is_file():
        _initialise(stack, cluster, log)
    _clear_stale_pid(cluster.data)
    processes.spawn(
        postgres_command(stack, cluster.binaries, cluster.data),
        folder=cluster.data.parent if cluster.account is None else Path("/"),
        log=log,
        environ={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        account=cluster.account,
    )


def _initialise(stack: Stack, cluster: Cluster, log: Path) -> None:
    draft = cluster.data.with_name("data.draft")
    shutil.rmtree(draft, ignore_errors=True)
    secret = cluster.data.with_name(".superuser")
    secret.write_text(stack.passwords["postgres"])
    secret.chmod(0o600)
    account = cluster.account
    if account:
        os.chown(secret, account.uid, account.gid)
    options = ["--username=postgres", f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8"]
    options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    command = [str(cluster.binaries / "initdb"), "-D", str(draft), *options, "--no-sync"]
    try:
        result = subprocess.run(
            command,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    finally:
        secret.unlink()
    if result.returncode:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(result.stdout + result.stderr)
        last = (result.stderr.strip().splitlines() or ["no word"])[-1]
        raise UnavailableError(f"initdb failed: {last} (see {log})")
    draft.rename(cluster.data)


def _clear_stale_pid(data: Path) -> None:
    """Remove the pid file of a server that is gone, after its last children are gone too.

    PostgreSQL does this itself unless the number was given to another process of the same user meanwhile.
    """
    pid_file = data / "postmaster.pid"
    if not pid_file.is_file():
        return
    children = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(data):
                children.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    if any(child.name() == "postgres" and str(data) in child.cmdline() for child in children):
        return  # a server serves this folder: let the new one say so
    psutil.wait_procs(children, timeout=10)
    pid_file.unlink(missing_ok=True)


def prepare_roles(stack: Stack) -> None:
    """Make the roles and databases that are missing. Idempotent."""
    with closing(psycopg.connect(stack.dsn("postgres"), autocommit=True)) as connection:
        connection.execute(ONE_LAUNCHER)
        roles = {row[0] for row in connection.execute(ROLE_NAMES)}
        for role, attribute in LOGIN_ROLES.items():
            if role not in roles:
                statement = sql.SQL("CREATE ROLE {} LOGIN {} PASSWORD {}")
                secret = sql.Literal(stack.passwords[role])
                connection.execute(statement.format(sql.Identifier(role), sql.SQL(attribute), secret))
        databases = {row[0] for row in connection.execute(DATABASE_NAMES)}
        for database in DATABASES:
            if database not in databases:
                owner = "waybill_registry" if database == "registry" else "postgres"
                statement = sql.SQL("CREATE DATABASE {} OWNER {}")
                connection.execute(statement.format(sql.Identifier(database), sql.Identifier(owner)))
