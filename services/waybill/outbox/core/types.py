"""Commands against the catalogue, before they are sent: what an outbox knows of their types decides.

Data that are sealed here are held against the schema before they are sealed. Data that came sealed, and data that
are elsewhere, cannot be looked at and pass.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from waybill.commandtypes import Given, KnownType, Refused, check_data
from waybill.contracts.command import DataForm
from waybill.contracts.fabric import Rendering, SchemaFormat, TenantConfig
from waybill.kernel.errors import RefusedError
from waybill.kernel.ids import Tenant
from waybill.outbox.core.draft import CommandDraft, encode_data

__all__ = ["applied_types", "asked", "known_types", "with_versions"]


def asked(drafts: Iterable[CommandDraft]) -> str:
    """Return the types the outbox is asked about, as it takes them."""
    return json.dumps(sorted({draft.command_type for draft in drafts}))


def known_types(rows: Iterable[Sequence[Any]]) -> dict[str, KnownType]:
    """Read rows of `type_versions` (type, version, format, definition, rendering), which come in the order of types."""
    found: dict[str, KnownType] = {}
    for command_type, group in groupby(rows, key=lambda row: str(row[0])):
        listed = list(group)
        found[command_type] = KnownType(
            format=SchemaFormat(listed[0][2]),
            versions={version: definition for _, version, _, definition, _ in listed},
            rendering=Rendering(listed[0][4]),
        )
    return found


def applied_types(tenant: TenantConfig, drafts: Iterable[CommandDraft]) -> dict[str, KnownType]:
    """Return what is applied of the types of some commands."""
    asked_for = {draft.command_type for draft in drafts}
    renderings = {route.command_type: route.rendering for route in tenant.routes}
    return {
        declared.name: KnownType(
            format=declared.format,
            versions={each.version: each.schema for each in declared.versions},
            rendering=renderings.get(declared.name, Rendering.AVRO),
        )
        for declared in tenant.command_types
        if declared.name in asked_for
    }


def with_versions(tenant: Tenant, drafts: Sequence[CommandDraft], known: Mapping[str, KnownType]) -> list[CommandDraft]:
    """Return drafts whose data keep the schemas of their types, each naming the version it was held against.

    Args:
        tenant: whose catalogue it is.
        drafts: the commands of one emission.
        known: what is known of their types.

    Raises:
        RefusedError: `payload_invalid` or `unknown_type_version`; names type, pointer and keyword, never the data.
        ConfigError: a type is described in Avro and the Avro library is not installed.
    """
    if not known:
        return list(drafts)
    many = len(drafts)
    return [
        _with_version(tenant, draft, f"command {number} of {many}: " if many > 1 else "", known)
        for number, draft in enumerate(drafts, start=1)
    ]


def _with_version(tenant: Tenant, draft: CommandDraft, place: str, known: Mapping[str, KnownType]) -> CommandDraft:
    of_type = known.get(draft.command_type)
    if of_type is None or draft.form is DataForm.REFERENCE or draft.data_key_id is not None:
        return draft
    is_value = of_type.format is SchemaFormat.AVRO and not isinstance(draft.data, bytes | bytearray | memoryview)
    data = draft.data if is_value else encode_data(draft)
    given = Given(named=draft.data_schema, content_type=draft.content_type, data=data)
    found = check_data(tenant, draft.command_type, of_type, given)
    if isinstance(found, Refused):
        raise RefusedError(place + found.message, rule=found.objection)
    return replace(
        draft,
        data=found.data,
        content_type=found.content_type,
        data_schema=draft.data_schema or found.data_schema,
    )
