"""The file that names whose tokens are taken; read once at start, strictly, and every mistake names its place."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from waybill.access.core.keys import Scope, check_name
from waybill.access.core.tokens import LEEWAY, Issuer
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import NAME_PATTERN, Tenant
from waybill.kernel.units import parse_duration

__all__ = ["read_issuers"]

_KNOWN: Final = {"issuer", "audience", "tenant", "leeway", "principal", "scopes"}
_LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}


def read_issuers(path: Path) -> tuple[Issuer, ...]:
    """Read the file.

    Raises:
        ConfigError: it cannot be read, or an entry is not as the guide describes it.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"issuers: {path} cannot be read: {type(error).__name__}") from error
    entries = document.get("issuers") if isinstance(document, dict) and set(document) == {"issuers"} else None
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"issuers: {path}: expected one member, issuers, with a list")
    return tuple(_issuer(entry, f"issuers[{place}]") for place, entry in enumerate(entries))


def _issuer(entry: object, where: str) -> Issuer:
    if not isinstance(entry, dict) or (set(entry) - _KNOWN) or not (_KNOWN - {"leeway"}) <= set(entry):
        raise ConfigError(f"{where}: expected {', '.join(sorted(_KNOWN))}; leeway may be left out")
    claim, principals = _mapping(entry["principal"], f"{where}.principal")
    scope_claim, scopes = _mapping(entry["scopes"], f"{where}.scopes")
    if unknown := sorted(set(scopes.values()) - set(Scope)):
        raise ConfigError(f"{where}.scopes: {unknown[0]} is no scope: expected {', '.join(Scope)}")
    tenant = _text(entry["tenant"], f"{where}.tenant")
    if not NAME_PATTERN.fullmatch(tenant):
        raise ConfigError(f"{where}.tenant: {tenant} is no name of a tenant")
    return Issuer(
        issuer=_address(entry["issuer"], f"{where}.issuer"),
        audience=_text(entry["audience"], f"{where}.audience"),
        tenant=Tenant(tenant),
        principal_claim=claim,
        principals={value: check_name(name) for value, name in principals.items()},
        scope_claim=scope_claim,
        scopes={word: Scope(scope) for word, scope in scopes.items()},
        leeway=_leeway(entry.get("leeway"), f"{where}.leeway"),
    )


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: expected text")
    return value


def _address(value: object, where: str) -> str:
    text = _text(value, where)
    parts = urlsplit(text)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ConfigError(f"{where}: expected https: whoever sits in between could sign for the issuer")
    return text


def _leeway(value: object, where: str) -> timedelta:
    if value is None:
        return LEEWAY
    try:
        found = timedelta(seconds=parse_duration(_text(value, where)))
    except ValueError as error:
        raise ConfigError(f"{where}: expected a time such as 30s") from error
    if found > timedelta(minutes=5):
        raise ConfigError(f"{where}: at most 5m: it is added to the life of every token")
    return found


def _mapping(value: Any, where: str) -> tuple[str, Mapping[str, str]]:
    if not isinstance(value, dict) or set(value) != {"claim", "names"} or not isinstance(value["names"], dict):
        raise ConfigError(f"{where}: expected claim and names")
    names = {_text(key, where): _text(name, where) for key, name in value["names"].items()}
    if not names:
        raise ConfigError(f"{where}.names: expected at least one")
    return _text(value["claim"], f"{where}.claim"), names
