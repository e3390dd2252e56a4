"""Making, rotating and revoking keys: each a transaction with its event, so that nothing happens that nobody did.

Keys of one principal are changed one after the other, under an advisory lock, so that two rotations at once end with
two keys that were told and none that was lost.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from waybill.access.core.keys import (
    ID_BYTES,
    SECRET_BYTES,
    KeyRecord,
    Scope,
    check_name,
    digest_of,
    key_text,
)
from waybill.access.core.lifetimes import expiry, shortened
from waybill.kernel.clock import Clock, format_instant
from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import Tenant

__all__ = ["COLUMNS", "KeyRing", "Minted", "record_of"]

COLUMNS: Final = "key_id, tenant, principal, scopes, digest, public_key, created_at, created_by, expires_at, revoked_at"
_LIST: Final = f"""
SELECT {COLUMNS} FROM access.api_key
WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s) AND (%(principal)s::text IS NULL OR principal = %(principal)s)
ORDER BY tenant, principal, created_at, key_id
"""  # noqa: S608 - constants
_ADD: Final = f"""
INSERT INTO access.api_key ({COLUMNS}) VALUES (%(key_id)s, %(tenant)s, %(principal)s, %(scopes)s, %(digest)s, %(public_key)s,
    %(created_at)s, %(created_by)s, %(expires_at)s, NULL)
"""  # noqa: S608 - constants
_SHORTEN: Final = "UPDATE access.api_key SET expires_at = %s WHERE key_id = %s"
_REVOKE: Final = "UPDATE access.api_key SET revoked_at = %s WHERE key_id = %s"
_TELL: Final = """
INSERT INTO access.event (at, by, action, key_id, tenant, principal, detail) VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_HISTORY: Final = """
SELECT at, by, action, key_id, tenant, principal, detail FROM access.event
WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s ORDER BY position DESC LIMIT %(limit)s
"""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('waybill.access.' || %s || '/' || %s, 0))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Minted:
    """A key that was just made; nobody can read `text` again."""

    record: KeyRecord
    #: Empty where its holder has it: a private key never comes here.
    text: str = field(repr=False)


class KeyRing:
    """The keys of all principals, over the caller's connection in autocommit."""

    def __init__(self, connection: psycopg.Connection[Any], clock: Clock) -> None:
        self._connection, self._clock = connection, clock

    def create(
        self,
        tenant: Tenant,
        principal: str,
        scopes: frozenset[Scope],
        *,
        lifetime: timedelta | None,
        by: str,
        public_key: bytes | None = None,
    ) -> Minted:
        """Make the first key of a principal, or the first after all of its others ended.

        Args:
            tenant: whose principal.
            principal: its name.
            scopes: what the key lets it do.
            lifetime: None is without end.
            by: who makes it.
            public_key: of a principal that signs its requests, Ed25519, 32 bytes; None makes an API key.

        Raises:
            RefusedError: it has one that lets it in: `rotate`, so that nobody is locked out.
        """
        check_name(principal)
        now = self._clock.now()
        with self._connection.transaction():
            self._connection.execute(_LOCK, (tenant, principal))
            if any(each.is_live(now) for each in self.list(tenant, principal)):
                raise RefusedError(
                    f"{tenant}/{principal} has a key in force: `waybill access keys rotate` makes the next one",
                    rule="key-in-force",
                )
            wanted = self._wanted(tenant, principal, scopes, expiry(now, lifetime), by)
            return self._mint(wanted, public_key)

    def rotate(
        self,
        tenant: Tenant,
        principal: str,
        *,
        lifetime: timedelta | None,
        overlap: timedelta,
        by: str,
        public_key: bytes | None = None,
    ) -> Minted:
        """Make the next key, with the scopes of the newest in force, and let the others end after `overlap`.

        A principal goes over from API keys to signed requests by a rotation, and never back without being told to.

        Raises:
            RefusedError: there is none to take the place of, or it signs its requests and no public key came.
        """
        now = self._clock.now()
        with self._connection.transaction():
            self._connection.execute(_LOCK, (tenant, principal))
            live = [each for each in self.list(tenant, principal) if each.is_live(now)]
            if not live:
                raise RefusedError(
                    f"{tenant}/{principal} has no key in force: `waybill access keys create` makes one",
                    rule="no-key-in-force",
                )
            if live[-1].public_key is not None and public_key is None:
                raise RefusedError(
                    f"{tenant}/{principal} signs its requests: give its next public key, `--public-key`",
                    rule="public-key-needed",
                )
            wanted = self._wanted(tenant, principal, live[-1].scopes, expiry(now, lifetime), by)
            minted = self._mint(wanted, public_key)
            ends = shortened(live, now, overlap)
            for each in live:
                if (end := ends.get(each.key_id)) is not None:
                    self._connection.execute(_SHORTEN, (end, each.key_id))
                    self._tell(each, "shortened", by, now, f"ends {format_instant(end)}")
            return minted

    def revoke(self, tenant: Tenant, principal: str, *, key_id: str | None, by: str) -> list[str]:
        """Take back one key, or all of a principal; return the ids of those that were in force.

        Again it changes nothing.
        """
        now = self._clock.now()
        with self._connection.transaction():
            self._connection.execute(_LOCK, (tenant, principal))
            live = [
                each
                for each in self.list(tenant, principal)
                if each.is_live(now) and (key_id is None or each.key_id == key_id)
            ]
            for each in live:
                self._connection.execute(_REVOKE, (now, each.key_id))
                self._tell(each, "revoked", by, now, "")
        return [each.key_id for each in live]

    def list(self, tenant: str | None = None, principal: str | None = None) -> Sequence[KeyRecord]:
        """Return keys, those that ended too, oldest first within a principal."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(_LIST.encode(), {"tenant": tenant, "principal": principal}).fetchall()
        return [record_of(row) for row in rows]

    def history(self, tenant: str | None = None, limit: int = 50) -> Sequence[Mapping[str, Any]]:
        """Return who did what to which key, newest first."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(_HISTORY.encode(), {"tenant": tenant, "limit": limit}).fetchall()

    def _wanted(
        self, tenant: Tenant, principal: str, scopes: frozenset[Scope], expires_at: datetime | None, by: str
    ) -> KeyRecord:
        return KeyRecord(
            key_id=secrets.token_hex(ID_BYTES),
            tenant=tenant,
            principal=principal,
            scopes=scopes,
            created_at=self._clock.now(),
            created_by=by,
            expires_at=expires_at,
        )

    def _mint(self, wanted: KeyRecord, public_key: bytes | None) -> Minted:
        if public_key is None:
            text = key_text(bytes.fromhex(wanted.key_id), secrets.token_bytes(SECRET_BYTES))
            record = replace(wanted, digest=digest_of(text))
        else:
            text, record = "", replace(wanted, public_key=public_key)
        values = {name: getattr(record, name) for name in COLUMNS.split(", ")} | {"scopes": sorted(record.scopes)}
        self._connection.execute(_ADD.encode(), values)
        self._tell(record, "created", record.created_by, record.created_at, ", ".join(sorted(record.scopes)))
        return Minted(record=record, text=text)

    def _tell(self, key: KeyRecord, action: str, by: str, at: datetime, detail: str) -> None:
        self._connection.execute(_TELL, (at, by, action, key.key_id, key.tenant, key.principal, detail))


def record_of(row: Mapping[str, Any]) -> KeyRecord:
    """Read one row; a scope this version does not know lets nobody do anything."""
    known = frozenset(Scope(word) for word in row["scopes"] if word in set(Scope))
    stored = {name: None if row[name] is None else bytes(row[name]) for name in ("digest", "public_key")}
    return KeyRecord(**{**row, "scopes": known, **stored})
