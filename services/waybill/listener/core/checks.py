"""May a verified body be executed here: the checks after the signature, in their fixed order.

Binding (tenant, destination), then expiry, then whether this listener has a handler for the type at the demanded
capability version. The first that fails names the refusal (DC-15). A refusal after the binding does not hide what
was done: the caller looks for a stored receipt first, because a repeat of an executed delivery reports its result
whatever the clock or the handlers say now.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.envelope import Envelope, GapResolution
from waybill.contracts.problem import Problem
from waybill.contracts.status_query import StatusQuery
from waybill.kernel.ids import DestinationName, Tenant

__all__ = ["ANY_TYPE", "Capability", "check_binding", "check_executable"]

#: The handler of every command type that has none of its own.
ANY_TYPE: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """What a handler declares it can do; None accepts any."""

    name: str | None = None
    #: Lowest and highest version, inclusive.
    versions: tuple[int, int] | None = None

    def serves(self, envelope: Envelope) -> bool:
        """Whether an envelope demands no more than this."""
        if self.name is not None and self.name != envelope.capability:
            return False
        return self.versions is None or self.versions[0] <= envelope.capability_version <= self.versions[1]


def check_binding(
    message: Envelope | GapResolution | StatusQuery, tenant: Tenant, destination: DestinationName
) -> Problem | None:
    """Refuse what was signed for somebody else (DC-10)."""
    if message.tenant != tenant:
        return Problem(code=ErrorCode.AUTHZ, reason="tenant", detail="signed for another tenant")
    if message.destination != destination:
        return Problem(code=ErrorCode.AUTHZ, reason="destination", detail="signed for another destination")
    return None


def check_executable(envelope: Envelope, capabilities: Mapping[str, Capability], now: datetime) -> Problem | None:
    """Refuse what is too late (DC-8) or what nobody here can do (DC-11).

    Args:
        envelope: verified and bound.
        capabilities: by command type, one per handler.
        now: UTC, from the listener's clock.
    """
    if envelope.expires_at <= now:
        return Problem(code=ErrorCode.POLICY_BLOCK, reason="expired", detail="the command's time is over")
    capability = capabilities.get(envelope.command_type) or capabilities.get(ANY_TYPE)
    if capability is None:
        return Problem(
            code=ErrorCode.PERMANENT_UNSUPPORTED, reason="command_type", detail="no handler for this command type"
        )
    if not capability.serves(envelope):
        return Problem(
            code=ErrorCode.PERMANENT_UNSUPPORTED,
            reason="capability",
            detail="this listener does not declare the demanded capability at the demanded version",
        )
    return None
