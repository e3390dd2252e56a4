"""The whole account of one delivery: its row, every attempt and move, and the four answers (OB-2).

One shape for the CLI's table and for its JSON, whether the read model knows the delivery or only outbox or topic do.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from waybill.contracts.states import State
from waybill.readmodel.core.explain import Answers, Standing, explain, explain_unseen
from waybill.readmodel.query import ReadModel, Row
from waybill.readmodel.unseen import IdRange, Unseen

__all__ = ["account_of", "accounts_of_unseen"]

#: Returns the team that answers for a tenant's destination, or None.
OwnerOf = Callable[[str, str], str | None]

#: Columns that only repeat what the account already says.
_LEFT_OUT: Final = frozenset({"tenant", "delivery_id"})


def account_of(model: ReadModel, delivery: Row, now: datetime, owner_of: OwnerOf) -> dict[str, Any]:
    """Return everything known about a delivery that is in the read model.

    `owner_of` answers while no worker has named the owner yet.
    """
    letters = model.dead_letters(delivery)
    owner = delivery["owner"] or owner_of(delivery["tenant"], delivery["destination"])
    answers = explain(
        Standing(
            tenant=delivery["tenant"],
            destination=delivery["destination"],
            state=State(delivery["state"]),
            attempts=delivery["attempts"],
            error_code=delivery["error_code"],
            detail=delivery["detail"],
            next_due=delivery["next_due"],
            expires_at=delivery["expires_at"],
            updated_at=delivery["updated_at"],
            owner=owner,
            dead_letter=f"{letters[-1]['cause']}: {letters[-1]['detail']}" if letters else None,
            waits_for=model.waits_for(delivery) if delivery["state"] == State.QUEUED else None,
        ),
        now,
    )
    return {
        "delivery_id": delivery["delivery_id"],
        "stage": "folded",
        **_answers(answers),
        **{key: value for key, value in delivery.items() if key not in {"delivery_id", "owner"}},
        "destination_owner": owner,
        "history": _without(model.attempts(delivery)),
        "moves": _without(model.moves(delivery)),
        "dead_letters": _without(letters),
    }


def accounts_of_unseen(unseen: Unseen, wanted: IdRange, now: datetime, owner_of: OwnerOf) -> list[dict[str, Any]]:
    """Return the accounts of a command's deliveries before the read model has them."""
    answers = explain_unseen(
        committed_at=unseen.issued_at, in_topic=unseen.in_topic, expires_at=unseen.expires_at, now=now
    )
    return [_unseen_account(unseen, entry, answers, owner_of) for entry in unseen.deliveries(wanted)]


def _unseen_account(
    unseen: Unseen, entry: tuple[uuid.UUID, str, int], answers: Answers, owner_of: OwnerOf
) -> dict[str, Any]:
    delivery, destination, number = entry
    return {
        "delivery_id": delivery,
        "stage": "committed" if unseen.in_topic is None else "in_topic",
        **_answers(answers),
        "tenant": unseen.tenant,
        "command_id": unseen.command_id,
        "destination": destination,
        "aggregate": unseen.aggregate,
        "sequence": number,
        "command_type": unseen.command_type,
        "request_id": unseen.request_id,
        "issued_at": unseen.issued_at,
        "expires_at": unseen.expires_at,
        "state": str(State.QUEUED),
        "version": 0,
        "attempts": 0,
        "destination_owner": owner_of(unseen.tenant, destination),
        "history": [],
        "moves": [],
        "dead_letters": [],
    }


def _answers(answers: Answers) -> dict[str, Any]:
    named = asdict(answers)
    return {"what_happened": named["happened"], "what_next": named["next"], "owner": named["owner"], "by": named["by"]}


def _without(rows: Sequence[Row]) -> list[Mapping[str, Any]]:
    return [{key: value for key, value in row.items() if key not in _LEFT_OUT} for row in rows]
