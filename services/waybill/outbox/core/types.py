"""Commands against the catalogue, before they are sent: what an outbox knows of their types decides.

Data that are sealed here are held against the schema before they are sealed. Data that came sealed, and data that
are elsewhere, cannot be looked at and pass.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from waybill.commandtypes import KnownVersion, Refused, check_data, schema_uri
from waybill.contracts.command import DataForm
from waybill.contracts.fabric import TenantConfig
from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import Tenant
from waybill.outbox.core.draft import CommandDraft, encode_data

__all__ = ["applied_types", "asked", "known_types", "with_versions"]


def asked(drafts: Iterable[CommandDraft]) -> str:
    """Return the types the outbox is asked about, as it takes them."""
    return json.dumps(sorted({draft.command_type for draft in drafts}))


def known_types(rows: Iterable[Sequence[Any]]) -> dict[str, list[KnownVersion]]:
    """Read rows of `type_versions` (type, version, format, definition): command type → its versions."""
    found: dict[str, list[KnownVersion]] = {}
    for command_type, version, _format, definition in rows:
        found.setdefault(command_type, []).append(KnownVersion(version=version, schema=definition))
    return found


def applied_types(tenant: TenantConfig, drafts: Iterable[CommandDraft]) -> dict[str, list[KnownVersion]]:
    """Return what is applied of the types of some commands: command type → its versions."""
    asked_for = {draft.command_type for draft in drafts}
    return {
        declared.name: [KnownVersion(version=each.version, schema=each.schema) for each in declared.versions]
        for declared in tenant.command_types
        if declared.name in asked_for
    }


def with_versions(
    tenant: Tenant, drafts: Sequence[CommandDraft], known: Mapping[str, Sequence[KnownVersion]]
) -> list[CommandDraft]:
    """Return drafts whose data keep the schemas of their types, each naming the version it was held against.

    Args:
        tenant: whose catalogue it is.
        drafts: the commands of one emission.
        known: what is known of their types.

    Raises:
        RefusedError: `payload_invalid` or `unknown_type_version`; names type, pointer and keyword, never the data.
    """
    if not known:
        return list(drafts)
    many = len(drafts)
    return [
        _with_version(tenant, draft, f"command {number} of {many}: " if many > 1 else "", known)
        for number, draft in enumerate(drafts, start=1)
    ]


def _with_version(
    tenant: Tenant, draft: CommandDraft, place: str, known: Mapping[str, Sequence[KnownVersion]]
) -> CommandDraft:
    versions = known.get(draft.command_type)
    if versions is None or draft.form is DataForm.REFERENCE or draft.data_key_id is not None:
        return draft
    base = schema_uri(tenant, draft.command_type)
    found = check_data(
        base, versions, named=draft.data_schema, content_type=draft.content_type, data=encode_data(draft)
    )
    if isinstance(found, Refused):
        raise RefusedError(place + found.message, rule=found.objection)
    return replace(draft, data_schema=draft.data_schema or found)
