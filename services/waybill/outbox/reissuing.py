"""Issuing a delivery again, once: a new command of the same content in the place of one whose time is over.

Which command it became is kept by the outbox in the transaction that issues it. So asking twice gives the same
command, whoever asks and however the first time ended.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import psycopg

from waybill.contracts.command import Command
from waybill.infra.postgres import identifier
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import DeliveryId, DestinationName, Tenant
from waybill.outbox.core.draft import CommandDraft, Emitted, emitted, encode_commands
from waybill.outbox.sdk import refusals

__all__ = ["Reissues", "draft_again"]

_CALL: Final = """
SELECT is_new, command_id, aggregate, sequences, issued_at, expires_at
FROM {schema}.reissue(%s, %s, CAST(%s AS jsonb) -> 0, %s, %s)
"""


def draft_again(command: Command, destination: DestinationName, ttl: timedelta | None) -> CommandDraft:
    """Return a command's content for one of its destinations, as the correction that replaces it there.

    Sealed data stay sealed with the same key, a reference stays one. Without a `ttl` the route says it.
    """
    aggregate_type, _, aggregate_id = command.aggregate.partition("/")
    return CommandDraft(
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        command_type=command.command_type,
        data=command.data,
        destinations=(destination,),
        optional=(destination,) if destination in command.optional_destinations else (),
        ttl=ttl,
        operation_id=command.operation_id,
        request_id=command.request_id,
        instruction_version=command.instruction_version + 1,
        replaces=command.command_id,
        content_type=command.content_type,
        data_schema=command.data_schema,
        capability=command.capability,
        capability_version=command.capability_version,
        legal_versions=command.legal_versions,
        config_versions=command.config_versions,
        traceparent=command.traceparent,
        data_key_id=command.data_key_id,
        data_ref=command.data_ref,
        data_digest=command.data_digest,
    )


@dataclass(frozen=True, slots=True)
class Reissues:
    """What was issued again in one outbox, over a connection in autocommit."""

    connection: psycopg.Connection[Any]
    tenant: Tenant
    schema: str = "waybill"

    def find(self, about: DeliveryId) -> Emitted | None:
        """Return the command a delivery was issued again as, if it was."""
        found = self._call(about, None, ("", ""))
        return None if found is None else emitted(found)

    def issue(self, about: DeliveryId, draft: CommandDraft, *, by: str, reason: str) -> tuple[Emitted, bool]:
        """Issue a delivery again; return its command, and whether it is new.

        Raises:
            RefusedError: the outbox does not take the command; `rule` says why.
        """
        assert isinstance(draft.data, bytes)
        found = self._call(about, encode_commands([draft], [draft.data]), (by, reason))
        assert found is not None
        return emitted(found), bool(found[0])

    def _call(self, about: DeliveryId, commands: str | None, said: tuple[str, str]) -> tuple[Any, ...] | None:
        query = _CALL.format(schema=identifier(self.schema)).encode()
        try:
            with refusals(), self.connection.transaction():
                return self.connection.execute(query, (self.tenant, about, commands, *said)).fetchone()
        except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName) as error:
            raise UnavailableError(
                f"the outbox in schema {self.schema} is older than this version, or none: run `waybill outbox install`"
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise UnavailableError(
                f"this role may not emit in schema {self.schema}: `waybill outbox check` says what it lacks"
            ) from error
