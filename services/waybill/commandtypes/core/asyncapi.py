"""A tenant's catalogue as AsyncAPI 3.0.0: what goes where, in what envelope, with which data.

The document is written from the side of the fabric. It receives commands on the topic that outboxes are relayed to,
as CloudEvents in binary mode: the data are the record's value. It sends each to the destinations of its route, as a
structured CloudEvent that holds the data. A destination's address is not told: catalogues are for everybody.

Schemas keep their own `$defs`; what they refer to is named from the top of the document, since that is where readers
of AsyncAPI look.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from waybill.commandtypes.core.checking import AVRO_TYPE
from waybill.commandtypes.core.json_schema import DIALECT, IN_LIST, IN_MAP, IN_PLACE
from waybill.commandtypes.core.versions import schema_uri
from waybill.contracts.fabric import CommandTypeConfig, Rendering, RouteConfig, SchemaFormat, TenantConfig, TypeVersion
from waybill.contracts.names import commands_topic

__all__ = ["asyncapi", "message_name"]

_JSON_SCHEMA: Final = "application/schema+json;version=draft-2020-12"
_AVRO: Final = "application/vnd.apache.avro+json;version=1.9.0"
_HTTP_BINDING: Final = "0.3.0"


def message_name(declared: CommandTypeConfig, version: TypeVersion) -> str:
    """Return what one version of a type is called in the document, and in no other tenant's."""
    return f"{declared.name}.{version.version}"


def asyncapi(tenant: TenantConfig, config_version: int) -> dict[str, Any]:
    """Return the document of what is applied for a tenant.

    Args:
        tenant: with its catalogue and its routes.
        config_version: the version of the configuration; it becomes the document's.
    """
    listed = [(declared, version) for declared in tenant.command_types for version in declared.versions]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"Commands of {tenant.name}",
            "version": str(config_version),
            "description": "Written from the applied configuration; every destination also dedups, verifies and answers as Waybill's wire page says.",
        },
        "defaultContentType": "application/json",
        "channels": {
            "commands": _commands(tenant, listed),
            **{f"destination-{route}": channel for route, channel in _destinations(tenant)},
        },
        "operations": {
            "receiveCommands": {"action": "receive", "channel": {"$ref": "#/channels/commands"}},
            **{f"deliver-{name}": _delivery(name) for name in sorted(_routed(tenant))},
        },
        "components": {
            "schemas": {message_name(*each): _schema(*each) for each in listed},
            "messages": {
                name: message
                for each in listed
                for name, message in (
                    (message_name(*each), _data_message(tenant, *each)),
                    (f"{message_name(*each)}.delivery", _delivery_message(tenant, *each)),
                )
            },
        },
    }


def _commands(tenant: TenantConfig, listed: list[tuple[CommandTypeConfig, TypeVersion]]) -> dict[str, Any]:
    return {
        "address": commands_topic(tenant.name),
        "title": "Commands as their outboxes issued them",
        "description": "CloudEvents in Kafka's binary mode; the key is the aggregate.",
        "messages": {message_name(*each): _ref("messages", message_name(*each)) for each in listed},
        "bindings": {"kafka": {"topic": commands_topic(tenant.name), "partitions": tenant.partitions}},
    }


def _routed(tenant: TenantConfig) -> dict[str, list[tuple[CommandTypeConfig, RouteConfig]]]:
    """Return, by destination, the declared types that are routed there."""
    routes = {route.command_type: route for route in tenant.routes}
    found: dict[str, list[tuple[CommandTypeConfig, RouteConfig]]] = {}
    for declared in tenant.command_types:
        route = routes.get(declared.name)
        for name in route.destinations if route is not None else ():
            assert route is not None
            found.setdefault(name, []).append((declared, route))
    return found


def _destinations(tenant: TenantConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    owners: dict[str, str] = {destination.name: destination.owner for destination in tenant.destinations}
    for name, types in sorted(_routed(tenant).items()):
        messages = [
            f"{message_name(declared, version)}.delivery" for declared, _ in types for version in declared.versions
        ]
        yield (
            name,
            {
                "address": None,
                "title": f"Deliveries to {name}",
                "description": f"Signed POSTs, by Standard Webhooks; {owners.get(name, 'nobody')} answers for it.",
                "messages": {each: _ref("messages", each) for each in messages},
            },
        )


def _delivery(name: str) -> dict[str, Any]:
    binding = {"method": "POST", "bindingVersion": _HTTP_BINDING}
    return {
        "action": "send",
        "channel": {"$ref": f"#/channels/destination-{name}"},
        "bindings": {"http": binding},
    }


def _data_message(tenant: TenantConfig, declared: CommandTypeConfig, version: TypeVersion) -> dict[str, Any]:
    return {
        **_told(declared, version),
        "contentType": _content_type(tenant, declared),
        "headers": {
            "type": "object",
            "required": ["ce_type"],
            "properties": {
                "ce_type": {"const": declared.name},
                "ce_dataschema": {"const": schema_uri(tenant.name, declared.name, version.version)},
            },
        },
        "payload": _ref("schemas", message_name(declared, version)),
        **({} if _is_binary(tenant, declared) else {"examples": [_example(version)]}),
    }


def _example(version: TypeVersion) -> dict[str, Any]:
    return {"name": "example", "payload": json.loads(version.example)}


def _is_binary(tenant: TenantConfig, declared: CommandTypeConfig) -> bool:
    """Say whether data of a type travel as Avro."""
    wanted = [route.rendering for route in tenant.routes if route.command_type == declared.name]
    return declared.format is SchemaFormat.AVRO and Rendering.JSON not in wanted


def _content_type(tenant: TenantConfig, declared: CommandTypeConfig) -> str:
    return AVRO_TYPE if _is_binary(tenant, declared) else "application/json"


def _delivery_message(tenant: TenantConfig, declared: CommandTypeConfig, version: TypeVersion) -> dict[str, Any]:
    data = f"#/components/schemas/{message_name(declared, version)}/schema"
    envelope = {
        "$schema": DIALECT,
        "type": "object",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "format": "uuid", "description": "The delivery, the same on every attempt."},
            "source": {"type": "string"},
            "type": {"const": declared.name},
            "dataschema": {"const": schema_uri(tenant.name, declared.name, version.version)},
            "datacontenttype": {"const": _content_type(tenant, declared)},
            **_carried(tenant, declared, data),
        },
    }
    return {
        **_told(declared, version),
        "contentType": "application/cloudevents+json",
        "payload": {"schemaFormat": _JSON_SCHEMA, "schema": envelope},
    }


def _carried(tenant: TenantConfig, declared: CommandTypeConfig, data: str) -> dict[str, Any]:
    if _is_binary(tenant, declared):
        return {"data_base64": {"type": "string", "description": "Plain Avro binary of the schema in dataschema."}}
    if declared.format is SchemaFormat.AVRO:
        return {"data": {"type": "object", "description": "The record of the schema in dataschema, as JSON."}}
    return {"data": {"$ref": data}}


def _told(declared: CommandTypeConfig, version: TypeVersion) -> dict[str, Any]:
    return {
        "name": declared.name,
        "title": f"{declared.name} {version.version}",
        "summary": declared.description,
        "tags": [{"name": f"owner: {declared.owner}"}, {"name": f"pii: {declared.pii}"}],
    }


def _schema(declared: CommandTypeConfig, version: TypeVersion) -> dict[str, Any]:
    if declared.format is SchemaFormat.AVRO:
        return {"schemaFormat": _AVRO, "schema": json.loads(version.schema)}
    place = f"#/components/schemas/{message_name(declared, version)}/schema"
    schema = _placed(json.loads(version.schema), place)
    return {"schemaFormat": _JSON_SCHEMA, "schema": {"$schema": DIALECT, **schema}}


def _placed(schema: Any, place: str) -> Any:
    """Return a schema whose references into itself begin at the top of the document it is put into."""
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _keyword(keyword, value, place) for keyword, value in schema.items()}


def _keyword(keyword: str, value: Any, place: str) -> Any:
    if keyword == "$ref":
        return place + value.removeprefix("#")
    if keyword in IN_PLACE:
        return _placed(value, place)
    if keyword in IN_MAP:
        return {name: _placed(inner, place) for name, inner in value.items()}
    if keyword in IN_LIST:
        return [_placed(inner, place) for inner in value]
    return value


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}
