"""The OpenAPI description: what each path takes and answers, beside the code that does it.

Requests are read from bytes, so that data stay as they came; hence nothing is derived from function signatures, and a
test plays the whole description against the running API.
"""

from collections.abc import Mapping
from typing import Any, Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import CONTENT_TYPE as PROBLEM_TYPE
from waybill.contracts.problem import TYPE_PREFIX
from waybill.contracts.states import State
from waybill.submission.core.members import command_schema
from waybill.submission.core.pages import MAX_LIMIT
from waybill.submission.core.reading import COMMANDS, MAX_COMMANDS, Form

__all__ = [
    "KEY_PATTERN",
    "KNOWN_TAG",
    "PAGE_PARAMETERS",
    "SCHEMAS",
    "STATING",
    "answers",
    "operation",
    "path_id",
    "submitting",
]

KEY_PATTERN: Final = "^[!-~]{1,200}$"
_INSTANT: Final = {"type": "string", "format": "date-time"}
_UUID: Final = {"type": "string", "format": "uuid"}
_TEXT: Final = {"type": "string"}


def _object(properties: Mapping[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


_DELIVERY: Final = _object({"deliveryId": _UUID, "destination": _TEXT, "sequence": {"type": "integer", "minimum": 1}})
_ISSUED: Final = _object(
    {
        "commandId": _UUID,
        "aggregate": _TEXT,
        "issuedAt": _INSTANT,
        "expiresAt": _INSTANT,
        "deliveries": _list("IssuedDelivery"),
    }
)
_STATES: Final = {"type": "string", "enum": ["accepted", "ambiguous", "settled"]}
_SUBMISSION: Final = _object(
    {
        "submissionId": _UUID,
        "state": _STATES,
        "acceptedAt": _INSTANT,
        "resubmissions": {"type": "integer", "minimum": 0},
        "ambiguousAt": _INSTANT,
        "settledAt": _INSTANT,
        "commands": _list("IssuedCommand"),
    },
    optional=("ambiguousAt", "settledAt"),
)
_STATE: Final = {"type": "string", "enum": list(State)}
_READ: Final = {
    "deliveryId": _UUID,
    "commandId": _UUID,
    "destination": _TEXT,
    "aggregate": _TEXT,
    "sequence": {"type": "integer", "minimum": 1},
    "state": _STATE,
    "version": {"type": "integer", "minimum": 0},
}
_KNOWN_LATER: Final = {
    **dict.fromkeys(("commandType", "requestId", "errorCode", "detail", "proofLevel"), _TEXT),
    **dict.fromkeys(("issuedAt", "expiresAt", "updatedAt"), _INSTANT),
}
_CODES: Final = {"type": "string", "enum": [TYPE_PREFIX + code for code in ErrorCode]}
_PROBLEM: Final = _object(
    {
        "type": _CODES,
        "title": _TEXT,
        "status": {"type": "integer"},
        "reason": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,63}$"},
        "detail": _TEXT,
        "submissionId": _UUID,
    },
    optional=("detail", "submissionId"),
)
SCHEMAS: Final[Mapping[str, Any]] = {
    "Command": command_schema(),
    "Batch": {
        "type": "object",
        "additionalProperties": False,
        "required": [COMMANDS],
        "properties": {COMMANDS: {**_list("Command"), "minItems": 1, "maxItems": MAX_COMMANDS}},
    },
    "IssuedDelivery": _DELIVERY,
    "IssuedCommand": _ISSUED,
    "Submission": _SUBMISSION,
    "Submissions": _object({"submissions": _list("Submission")}),
    "Delivery": _object({**_READ, **_KNOWN_LATER}, optional=tuple(_KNOWN_LATER)),
    "Deliveries": _object({"deliveries": _list("Delivery"), "next": _TEXT}, optional=("next",)),
    "PostedResult": _object({"resultId": _UUID, "state": {"type": "string", "enum": ["published"]}}),
    "Result": _object(
        {
            **dict.fromkeys(("specversion", "id", "source", "type", "subject", "time", "tenant", "destination"), _TEXT),
            "data": _object(
                {"delivery_id": _UUID, "receipt": {"type": "object"}, "problem": {"type": "object"}},
                ("receipt", "problem"),
            ),
        }
    ),
    "Problem": _PROBLEM,
}


def _parameter(name: str, place: str, schema: Mapping[str, Any], description: str = "") -> dict[str, Any]:
    said = {"description": description} if description else {}
    return {"name": name, "in": place, "required": place == "path", "schema": schema, **said}


PAGE_PARAMETERS: Final = (
    _parameter("destination", "query", {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,29}$"}),
    _parameter("state", "query", _STATE),
    _parameter("aggregate", "query", {"type": "string", "maxLength": 255}),
    _parameter("requestId", "query", {"type": "string", "maxLength": 255}),
    _parameter("commandId", "query", _UUID),
    _parameter("cursor", "query", _TEXT, "`next` of the page before; the filters stay the same."),
    _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
)
KNOWN_TAG: Final = _parameter("If-None-Match", "header", _TEXT, "An ETag: 304 while nothing changed.")


def path_id(name: str) -> dict[str, Any]:
    """Return the parameter of a path that is an id."""
    return _parameter(name, "path", _UUID)


_PROBLEMS: Final[Mapping[int, str]] = {
    400: "It cannot be read as what is described here.",
    401: "No credentials, or they were refused.",
    403: "The key lacks the scope, or a result is not signed by its destination.",
    404: "Not there, or not this tenant's.",
    409: "Another body came under this Idempotency-Key, or a person decides about it; a result of this id was heard.",
    413: "More bytes than are taken.",
    415: "Another content type than described, or compressed.",
    422: "The outbox, or the worker, would refuse it; `reason` says why.",
    503: "Try again later; with the reason outcome_unknown it may have been taken.",
}


def answers(schema: str, *problems: int, **ok: str) -> dict[int | str, dict[str, Any]]:
    """Return the answers of an operation: `s202="what it means"` and so on, then problems by status."""
    found: dict[int | str, dict[str, Any]] = {
        int(status[1:]): {"description": said, "content": {"application/json": {"schema": _ref(schema)}}}
        for status, said in ok.items()
    }
    if 304 in problems:
        found[304] = {"description": "As the ETag says: nothing changed."}
    for status in (401, 403, 503, *(each for each in problems if each != 304)):
        found[status] = {
            "description": _PROBLEMS[status],
            "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}},
        }
    return found


def operation(
    *parameters: Mapping[str, Any], body: str | None = None, content_type: str = "application/json"
) -> dict[str, Any]:
    """Return what OpenAPI is told beyond the answers."""
    extra: dict[str, Any] = {"security": [{"apiKey": []}]}
    if parameters:
        extra["parameters"] = list(parameters)
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {content_type: {"schema": _ref(body)}}}
    return extra


def _signature_header(name: str, description: str) -> dict[str, Any]:
    return {**_parameter(name, "header", _TEXT, description), "required": True}


STATING: Final = operation(
    _signature_header("webhook-id", "The id of the result."),
    _signature_header("webhook-timestamp", "Unix seconds, by the destination's clock."),
    _signature_header("webhook-signature", "v1a, by a results key of the destination."),
    body="Result",
    content_type="application/cloudevents+json",
)


def submitting(form: Form) -> dict[str, Any]:
    """Return what OpenAPI is told about a way to submit."""
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": True,
        "description": "Names this submission for ever; the same bytes under it are the same submission.",
        "schema": {"type": "string", "pattern": KEY_PATTERN},
    }
    return operation(key, body="Command" if form is Form.SINGLE else "Batch")
