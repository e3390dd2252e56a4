"""Why the outbox refuses: one name and one SQLSTATE per rule, the same in SQL and here.

A refusal happens inside the producer's own transaction, so it must be telling by itself: its message names the
rule and the object, its hint says what to do, and neither ever holds the payload.
"""

from enum import StrEnum
from typing import Final

__all__ = ["SQLSTATES", "Rule"]


class Rule(StrEnum):
    """What a producer asked for and may not have."""

    #: The tenant is not provisioned in this outbox.
    UNKNOWN_TENANT = "unknown_tenant"
    #: Another outbox numbers this aggregate type: a second counter would break its sequence.
    FOREIGN_AGGREGATE_TYPE = "foreign_aggregate_type"
    #: No route for the command type, and the command does not name both destinations and TTL.
    UNKNOWN_ROUTE = "unknown_route"
    #: A named destination is not provisioned for the tenant.
    UNKNOWN_DESTINATION = "unknown_destination"
    #: Above the tenant's limit: emit a reference.
    PAYLOAD_TOO_LARGE = "payload_too_large"
    #: The content type says JSON, the bytes are not exactly one JSON value in UTF-8.
    PAYLOAD_NOT_JSON = "payload_not_json"
    #: The route does not let data travel in this form.
    FORM_NOT_PERMITTED = "form_not_permitted"
    #: Zero, negative, above ten years, or longer than a destination of the command remembers what it did (GW-8).
    TTL_OUT_OF_RANGE = "ttl_out_of_range"
    #: A field that becomes a header or attribute has a shape it may not have.
    MALFORMED_FIELD = "malformed_field"
    #: A misspelt option would otherwise be ignored in silence.
    UNKNOWN_OPTION = "unknown_option"
    #: UPDATE, DELETE or TRUNCATE of issued commands, by whomever (DC-2).
    ISSUED_IS_FINAL = "issued_is_final"
    #: The data, or their content type, are not what the catalogue says of their command type.
    PAYLOAD_INVALID = "payload_invalid"
    #: `data_schema` names a version of the command type that is not in the catalogue.
    UNKNOWN_TYPE_VERSION = "unknown_type_version"


#: SQLSTATE → rule; class WB belongs to Waybill and never changes its meaning.
SQLSTATES: Final = {f"WB{number:03d}": rule for number, rule in enumerate(Rule, start=1)}
