"""`waybill keys`: a tenant's signing and sealing keys, as files."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.crypto.keyring import (
    DEFAULT_OVERLAP,
    all_keys,
    ensure_sealing,
    ensure_signing,
    rotate_sealing,
    rotate_signing,
)
from waybill.crypto.keys import Algorithm, KeyRecord, jwks_document, jwks_path, read_keys, sealing_path, signing_path
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import format_instant
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import NAME_PATTERN, Tenant

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Keys of a tenant: sign deliveries, seal data.")

TenantOption = Annotated[str, typer.Option("--tenant", help="Whose keys.")]
KeysDirOption = Annotated[
    Path | None,
    typer.Option("--keys-dir", help="Folder of all tenants' keys; else WAYBILL_KEYS_DIR, else the local stack's."),
]
OverlapOption = Annotated[
    float,
    typer.Option(
        "--overlap-hours",
        min=0,
        help="How long the keys before the new one go on signing; 0 revokes them, and refuses what is on its way.",
    ),
]
StartsOption = Annotated[
    float,
    typer.Option("--starts-in-hours", min=0, help="Give the new key out now, and sign with it only from then on."),
]
AlgorithmOption = Annotated[str, typer.Option("--algorithm", help="aes-256-gcm or chacha20-poly1305.")]


def _place(tenant: str, keys_dir: Path | None) -> tuple[Path, Tenant]:
    if not NAME_PATTERN.match(tenant):
        raise ConfigError(f"--tenant {tenant!r}: lower case letters, digits and -, at most 30, a letter first")
    return keys_dir or Path(Addresses.load().need("keys_dir")), Tenant(tenant)


def _state(key: KeyRecord, now: datetime) -> str:
    if key.is_valid_at(now):
        return "active" if key.not_after is None else "retiring"
    return "upcoming" if now < key.not_before else "retired"


def _row(key: KeyRecord, now: datetime) -> dict[str, object]:
    signs = key.algorithm is Algorithm.ED25519
    return {
        "kid": key.key_id,
        "use": "sign" if signs else "seal",
        "algorithm": key.algorithm.value,
        "state": _state(key, now),
        "not_before": format_instant(key.not_before),
        "not_after": format_instant(key.not_after) if key.not_after is not None else None,
        "public": key.public_text() if signs else None,
    }


def _show(tenant: Tenant, keys: tuple[KeyRecord, ...], files: dict[str, Path], is_changed: bool, as_json: bool) -> None:
    rows = [_row(key, SystemClock().now()) for key in keys]
    if as_json:
        shown = {name: str(path) for name, path in files.items()}
        print_json({"tenant": tenant, "changed": is_changed, "files": shown, "keys": rows})
        return
    print_table(f"keys of {tenant}", ["kid", "use", "state", "not_before", "not_after"], rows)


def _signing_files(folder: Path, tenant: Tenant) -> dict[str, Path]:
    return {"signing": signing_path(folder, tenant), "jwks": jwks_path(folder, tenant)}


def _act(act: Callable[[], object], said: str) -> bool:
    is_changed = act() is not False
    console.print(said if is_changed else "nothing to do: there are keys already", markup=False)
    return is_changed


@app.command()
def new(tenant: TenantOption, keys_dir: KeysDirOption = None, as_json: JsonFlag = False) -> None:
    """Make the first signing key of a tenant; what is there stays."""
    folder, name = _place(tenant, keys_dir)
    is_changed = _act(lambda: ensure_signing(folder, name, SystemClock().now()), f"made a signing key for {name}")
    _show(name, read_keys(signing_path(folder, name)), _signing_files(folder, name), is_changed, as_json)


@app.command()
def rotate(
    tenant: TenantOption,
    keys_dir: KeysDirOption = None,
    overlap_hours: OverlapOption = DEFAULT_OVERLAP.total_seconds() / 3600,
    starts_in_hours: StartsOption = 0.0,
    as_json: JsonFlag = False,
) -> None:
    """Add a signing key that is valid now, or from a named time on; the ones before it end the overlap after that."""
    folder, name = _place(tenant, keys_dir)
    overlap, later = timedelta(hours=overlap_hours), timedelta(hours=starts_in_hours)
    _act(lambda: rotate_signing(folder, name, SystemClock().now(), overlap, later), f"added a signing key for {name}")
    _show(name, read_keys(signing_path(folder, name)), _signing_files(folder, name), True, as_json)


@app.command(name="list")
def list_(tenant: TenantOption, keys_dir: KeysDirOption = None, as_json: JsonFlag = False) -> None:
    """List a tenant's keys with their windows; never a secret."""
    folder, name = _place(tenant, keys_dir)
    files = {**_signing_files(folder, name), "sealing": sealing_path(folder, name)}
    present = {kind: path for kind, path in files.items() if path.exists()}
    _show(name, all_keys(folder, name), present, False, as_json)


@app.command()
def jwks(tenant: TenantOption, keys_dir: KeysDirOption = None, as_json: JsonFlag = False) -> None:
    """Print the public keys as a JSON Web Key Set, for listeners; always JSON."""
    folder, name = _place(tenant, keys_dir)
    print_json(jwks_document(read_keys(signing_path(folder, name))))


def _sealing(text: str) -> Algorithm:
    if text not in {Algorithm.AES_256_GCM, Algorithm.CHACHA20_POLY1305}:
        raise ConfigError(f"--algorithm {text!r}: expected aes-256-gcm or chacha20-poly1305")
    return Algorithm(text)


def _seal(
    place: tuple[Path, Tenant],
    algorithm: str,
    make: Callable[[Path, Tenant, datetime, Algorithm], object],
    done: str,
    as_json: bool,
) -> None:
    """Make or add a sealing key and show what there is now."""
    folder, tenant = place
    kind, path = _sealing(algorithm), sealing_path(folder, tenant)
    is_changed = _act(lambda: make(folder, tenant, SystemClock().now(), kind), f"{done} a sealing key for {tenant}")
    _show(tenant, read_keys(path), {"sealing": path}, is_changed, as_json)


@app.command(name="seal-new")
def seal_new(
    tenant: TenantOption,
    keys_dir: KeysDirOption = None,
    algorithm: AlgorithmOption = Algorithm.AES_256_GCM.value,
    as_json: JsonFlag = False,
) -> None:
    """Make the first sealing key of a tenant; what is there stays."""
    _seal(_place(tenant, keys_dir), algorithm, ensure_sealing, "made", as_json)


@app.command(name="seal-rotate")
def seal_rotate(
    tenant: TenantOption,
    keys_dir: KeysDirOption = None,
    algorithm: AlgorithmOption = Algorithm.AES_256_GCM.value,
    as_json: JsonFlag = False,
) -> None:
    """Add a sealing key that seals from now on; the ones before it only open what they sealed."""
    _seal(_place(tenant, keys_dir), algorithm, rotate_sealing, "added", as_json)
