"""What the API said, as records, and the errors that are its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from waybill.contracts.states import State
from waybill.kernel.errors import FabricError, RefusedError

__all__ = [
    "OPEN",
    "AmbiguousError",
    "Command",
    "Delivery",
    "Page",
    "RefusalError",
    "Submission",
    "Waited",
    "read_page",
    "read_submission",
]

#: A delivery in one of these is still moved on without people.
OPEN: Final = frozenset({State.QUEUED, State.RETRYING, State.DELIVERED, State.AMBIGUOUS})


class AmbiguousError(FabricError):
    """Nobody knows whether the commands were taken. Submit the same under the same key again, or ask a person.

    `idempotency_key` is the key to ask with; `submission_id` is known where the API told it.
    """

    code = "ambiguous"

    def __init__(self, message: str, *, idempotency_key: str, submission_id: UUID | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
        self.submission_id = submission_id


class RefusalError(RefusedError):
    """The API refused: the same request will be refused again. `rule` is the problem's reason."""

    def __init__(self, message: str, *, rule: str, status: int, submission_id: UUID | None = None) -> None:
        super().__init__(message, rule=rule)
        self.status = status
        self.submission_id = submission_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that was taken."""

    command_id: UUID
    aggregate: str
    issued_at: str
    expires_at: str
    #: Destination → the id of its delivery.
    deliveries: Mapping[str, UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What was taken under a key. Whether a destination applied it, only its deliveries say."""

    submission_id: UUID
    #: accepted, ambiguous or settled.
    state: str
    accepted_at: str
    resubmissions: int
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A delivery as the read model knows it; `details` is everything the API said of it."""

    delivery_id: UUID
    command_id: UUID
    destination: str
    aggregate: str
    state: State
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Deliveries, and the cursor of the page that follows."""

    deliveries: Sequence[Delivery]
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """Where the deliveries of a command stood when waiting ended, by destination."""

    deliveries: Mapping[str, Delivery]
    #: Whether every destination that was waited for stands in a state that only people leave.
    is_settled: bool


def read_submission(document: Mapping[str, Any]) -> Submission:
    """Read a submission as the API tells it."""
    return Submission(
        submission_id=UUID(document["submissionId"]),
        state=document["state"],
        accepted_at=document["acceptedAt"],
        resubmissions=document["resubmissions"],
        commands=tuple(
            Command(
                command_id=UUID(each["commandId"]),
                aggregate=each["aggregate"],
                issued_at=each["issuedAt"],
                expires_at=each["expiresAt"],
                deliveries={one["destination"]: UUID(one["deliveryId"]) for one in each["deliveries"]},
            )
            for each in document["commands"]
        ),
    )


def read_page(document: Mapping[str, Any]) -> Page:
    """Read a page of deliveries as the API tells it."""
    found = [
        Delivery(
            delivery_id=UUID(each["deliveryId"]),
            command_id=UUID(each["commandId"]),
            destination=each["destination"],
            aggregate=each["aggregate"],
            state=State(each["state"]),
            details=each,
        )
        for each in document["deliveries"]
    ]
    return Page(deliveries=found, cursor=document.get("next"))
