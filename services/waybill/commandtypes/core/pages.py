"""A page for each command type of a tenant, and one that lists them; Markdown."""

import json
from collections.abc import Iterator

from waybill.commandtypes.core.versions import default_of, schema_uri
from waybill.contracts.fabric import CommandTypeConfig, RouteConfig, SchemaFormat, TenantConfig
from waybill.kernel.units import format_duration

__all__ = ["pages", "type_page"]


def pages(tenant: TenantConfig, config_version: int) -> dict[str, str]:
    """Return file name → page; names are those of the types, and `README.md` lists them."""
    routes = {route.command_type: route for route in tenant.routes}
    found = {
        f"{declared.name}.md": type_page(tenant.name, declared, routes.get(declared.name))
        for declared in tenant.command_types
    }
    return {"README.md": "\n".join(_index(tenant, config_version)), **found}


def type_page(tenant: str, declared: CommandTypeConfig, route: RouteConfig | None = None) -> str:
    """Return the page of one command type; without a route it says nothing of where commands go."""
    return "\n".join((*_head(declared), *_way(declared, route), *_versions(tenant, declared), ""))


def _index(tenant: TenantConfig, config_version: int) -> Iterator[str]:
    yield f"# Commands of {tenant.name}"
    yield ""
    yield f"Written from configuration {config_version} by `waybill catalogue docs {tenant.name}`; edits here are lost."
    yield ""
    yield "| command type | owner | personal data | versions | what |"
    yield "| --- | --- | --- | --- | --- |"
    for declared in tenant.command_types:
        versions = ", ".join(each.version for each in declared.versions)
        what = _cell(declared.description)
        yield f"| [{declared.name}]({declared.name}.md) | {_cell(declared.owner)} | {declared.pii} | {versions} | {what} |"
    yield ""


def _head(declared: CommandTypeConfig) -> Iterator[str]:
    yield f"# {declared.name}"
    yield ""
    yield declared.description
    yield ""
    yield "| | |"
    yield "| --- | --- |"
    yield f"| owner | {_cell(declared.owner)} |"
    yield f"| personal data | {declared.pii} |"
    default = default_of([each.version for each in declared.versions])
    yield f"| held against, when a command names no version | {default} |"


def _way(declared: CommandTypeConfig, route: RouteConfig | None) -> Iterator[str]:
    if route is not None:
        yield f"| goes to | {', '.join(route.destinations)} |"
        yield f"| expires after | {format_duration(route.ttl_s)} |"
        if declared.format is SchemaFormat.AVRO:
            yield f"| stored, signed and sent as | {route.rendering} |"
        yield f"| data travel | {', '.join(sorted(form.value for form in route.forms))} |"


def _versions(tenant: str, declared: CommandTypeConfig) -> Iterator[str]:
    for version in reversed(declared.versions):
        yield from ("", f"## {version.version}", "")
        yield f"`data_schema`: `{schema_uri(tenant, declared.name, version.version)}`"
        yield ""
        yield from _block(json.dumps(json.loads(version.schema), indent=2, ensure_ascii=False))
        yield from ("", "For example:", "")
        yield from _block(version.example)


def _block(text: str) -> Iterator[str]:
    """Fence a text with more backticks than it holds in a row."""
    fence = "```"
    while fence in text:
        fence += "`"
    yield f"{fence}json"
    yield text
    yield fence


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
