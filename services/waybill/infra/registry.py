"""The schema registry, through its Confluent-compatible interface (Apicurio: `/apis/ccompat/v7`).

Two facts of registries bite and are handled here and nowhere else. Compatibility is not enforced until a subject
says so (the default is none), so `require_full_transitive` comes before the first registration. And the same
schema with its JSON keys in another order is another schema with another id, so every text passes through
`canonical_schema` on its way out. Versions are never trusted: the id is the identity.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from waybill.infra.json_http import JsonHttp, Reply
from waybill.kernel.errors import ConfigError, ContractError, RefusedError, UnavailableError

__all__ = ["FULL_TRANSITIVE", "Compatibility", "Registry", "canonical_schema"]

#: Readers and writers of every version may meet every other: messages outlive deployments.
FULL_TRANSITIVE: Final = "FULL_TRANSITIVE"

#: Attributes first in this order, any other after them by name.
_ORDER: Final = ("type", "name", "namespace", "logicalType", "doc", "default", "symbols", "items", "values", "fields")


def canonical_schema(text: str) -> str:
    """Return the one text under which a schema is registered: fixed attribute order, no white space, `doc` kept.

    Raises:
        ValueError: not JSON.
    """
    return json.dumps(_ordered(json.loads(text)), separators=(",", ":"), ensure_ascii=False)


def _ordered(node: Any) -> Any:
    if isinstance(node, list):
        return [_ordered(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    rank = {name: place for place, name in enumerate(_ORDER)}
    keys = sorted(node, key=lambda key: (rank.get(key, len(rank)), key))
    return {key: node[key] if key == "default" else _ordered(node[key]) for key in keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """Whether a schema may follow those already registered; `messages` say what stands against it."""

    is_compatible: bool
    messages: tuple[str, ...]


class Registry:
    """One registry. Every method may raise UnavailableError when it does not answer or answers with a fault."""

    def __init__(self, url: str, timeout_s: float = 20.0) -> None:
        self._http = JsonHttp(url, "the schema registry (WAYBILL_REGISTRY_URL)", timeout_s)

    def subjects(self) -> list[str]:
        """Return all subjects; a registry may cap the list at 1000."""
        return list(self._good(self._http.call("GET", "/subjects")).document)

    def compatibility(self, subject: str) -> str | None:
        """Return the level set on the subject itself; None when it has none of its own."""
        reply = self._http.call("GET", f"/config/{quote(subject, safe='')}")
        if reply.status == 404:
            return None
        level = self._good(reply).document
        return str(level.get("compatibilityLevel") or level.get("compatibility"))

    def require_full_transitive(self, subject: str) -> bool:
        """Set FULL_TRANSITIVE on the subject; return False when it already was."""
        if self.compatibility(subject) == FULL_TRANSITIVE:
            return False
        body = {"compatibility": FULL_TRANSITIVE}
        self._good(self._http.call("PUT", f"/config/{quote(subject, safe='')}", body))
        if self.compatibility(subject) != FULL_TRANSITIVE:
            raise UnavailableError(f"the registry at {self._http.shown} did not keep {FULL_TRANSITIVE} on {subject}")
        return True

    def check(self, subject: str, schema: str) -> Compatibility:
        """Ask whether a schema may follow every registered version; a subject without versions accepts any."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true"
        reply = self._http.call("POST", path, _body(schema))
        if reply.status == 404:
            return Compatibility(is_compatible=True, messages=())
        document = self._good(reply, subject).document
        messages = tuple(str(line) for line in document.get("messages") or ())
        return Compatibility(is_compatible=bool(document.get("is_compatible")), messages=messages)

    def register(self, subject: str, schema: str) -> int:
        """Register a schema and return its id; the same schema again returns the same id.

        Raises:
            RefusedError: rule `schema_compatibility`: it does not fit the versions already registered.
            ContractError: the registry cannot read it.
        """
        reply = self._http.call("POST", f"/subjects/{quote(subject, safe='')}/versions", _body(schema))
        if reply.status == 409:
            raise RefusedError(
                f"subject {subject}: not compatible with a registered version ({reply.reason})",
                rule="schema_compatibility",
            )
        return int(self._good(reply, subject).document["id"])

    def find(self, subject: str, schema: str) -> int | None:
        """Return the id of exactly this schema under the subject, or None."""
        reply = self._http.call("POST", f"/subjects/{quote(subject, safe='')}", _body(schema))
        if reply.status == 404:
            return None
        return int(self._good(reply, subject).document["id"])

    def schema_id(self, subject: str, schema_text: str) -> int:
        """Return the id a writer puts into its frames.

        Raises:
            ConfigError: the schema is not registered; says which command registers it.
        """
        found = self.find(subject, schema_text)
        if found is None:
            raise ConfigError(f"the schema of subject {subject} is not registered: run `waybill schemas apply`")
        return found

    def schema(self, schema_id: int) -> str:
        """Return the text of a schema by the id in a frame.

        Raises:
            ContractError: the registry knows no such id; the record that names it cannot be read.
        """
        reply = self._http.call("GET", f"/schemas/ids/{schema_id}")
        if reply.status == 404:
            raise ContractError(f"schema id {schema_id} is not in the registry at {self._http.shown}")
        return str(self._good(reply).document["schema"])

    def _good(self, reply: Reply, subject: str | None = None) -> Reply:
        if reply.status < 300:
            return reply
        if reply.status == 422:
            raise ContractError(f"the registry cannot read the schema of {subject}: {reply.reason}")
        raise UnavailableError(f"the registry at {self._http.shown} answered {reply.status}: {reply.reason}")


def _body(schema: str) -> dict[str, str]:
    return {"schema": canonical_schema(schema), "schemaType": "AVRO"}
