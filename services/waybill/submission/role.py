"""The role the server logs in as: what it may do in the control database and beside each outbox, and nothing else.

Beside an outbox it may read what was submitted and call four functions; in the outbox itself it may do nothing. So
whoever takes the server over can submit, as every holder of a key can, and cannot read a payload, change or hide a
submission, number an aggregate or give out a key.
"""

from typing import Any, Final

import psycopg

from waybill.infra.postgres import identifier
from waybill.submission.outboxes import prepare
from waybill.submission.store import schema_beside

__all__ = ["ROLE", "control_sql", "grant_beside_outbox", "grant_in_control", "outbox_sql"]

ROLE: Final = "waybill_api"

_MAKE: Final = """\
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
        CREATE ROLE {role} NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL; -- roles belong to the whole server: another database made it just now
END $$;
"""
_CONTROL: Final = """\
GRANT USAGE ON SCHEMA fabric, access, submission, read, delivery TO {role};
GRANT SELECT ON fabric.config_version, fabric.object, access.api_key, submission.resubmission_rule, read.delivery TO {role};
GRANT SELECT (tenant, destination, result_id, weighed) ON delivery.result TO {role};
GRANT INSERT ON submission.refused_result TO {role};
GRANT SELECT (until), INSERT, DELETE ON access.seen_nonce TO {role};
"""
_OUTBOX: Final = """\
GRANT USAGE ON SCHEMA {beside} TO {role};
GRANT SELECT ON {beside}.submission, {beside}.migration TO {role};
GRANT EXECUTE ON FUNCTION {beside}.submit(uuid, text, text, text, bytea, timestamptz, jsonb) TO {role};
GRANT EXECUTE ON FUNCTION {beside}.submit_each(text, text, timestamptz, uuid[], text[], bytea[], jsonb) TO {role};
GRANT EXECUTE ON FUNCTION {beside}.resubmitted(uuid, timestamptz, boolean) TO {role};
GRANT EXECUTE ON FUNCTION {beside}.forget(timestamptz) TO {role};
"""


def control_sql(role: str = ROLE) -> str:
    """Return what makes the role in the control database, as text for whoever may."""
    return (_MAKE + _CONTROL).replace("{role}", identifier(role, what="role"))


def outbox_sql(outbox_schema: str, role: str = ROLE) -> str:
    """Return what makes the role beside an outbox; the schema beside it is there already."""
    text = (_MAKE + _OUTBOX).replace("{role}", identifier(role, what="role"))
    return text.replace("{beside}", schema_beside(outbox_schema))


def grant_in_control(connection: psycopg.Connection[Any], role: str = ROLE) -> None:
    """Make the role in the control database; idempotent."""
    connection.execute(control_sql(role).encode())


def grant_beside_outbox(connection: psycopg.Connection[Any], outbox_schema: str, role: str = ROLE) -> None:
    """Make or upgrade what remembers submissions beside an outbox, and the role that may use it; idempotent."""
    prepare(connection, outbox_schema)
    connection.execute(outbox_sql(outbox_schema, role).encode())
