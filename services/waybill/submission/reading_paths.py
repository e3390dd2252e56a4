"""The paths that read deliveries; each answer has an ETag, so that asking again costs nothing while nothing changed."""

from uuid import UUID

import psycopg
from fastapi import Request, Response

from waybill.access import Principal
from waybill.infra.log import get_logger
from waybill.submission.answering import NOT_FOUND, json_answer, malformed, problem_answer, refused_answer
from waybill.submission.core.pages import Place, cursor, etag, read_wanted, told_delivery
from waybill.submission.core.refusals import UNAVAILABLE, Refused
from waybill.submission.deliveries import Deliveries

__all__ = ["ReadingPaths"]


class ReadingPaths:
    """What a principal may ask about its tenant's deliveries."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    async def page(self, request: Request, who: Principal) -> Response:
        """Answer a page of deliveries, newest first."""
        wanted = read_wanted(request.query_params.multi_items())
        if isinstance(wanted, str):
            return problem_answer(malformed("malformed_query", wanted))
        try:
            rows = await self._deliveries.page(who.tenant, wanted)
        except psycopg.Error as error:
            return _away(error)
        document: dict[str, object] = {"deliveries": [told_delivery(row) for row in rows]}
        if len(rows) == wanted.limit:
            last = rows[-1]
            document["next"] = cursor(Place(issued_at=last["issued_at"], delivery_id=last["delivery_id"]))
        return _unless_known(request, document)

    async def one(self, request: Request, who: Principal) -> Response:
        """Answer one delivery."""
        try:
            row = await self._deliveries.one(who.tenant, UUID(request.path_params["deliveryId"]))
        except ValueError:
            return problem_answer(NOT_FOUND)
        except psycopg.Error as error:
            return _away(error)
        return problem_answer(NOT_FOUND) if row is None else _unless_known(request, told_delivery(row))


def _unless_known(request: Request, document: object) -> Response:
    tag = etag(document)
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if known & {tag, "*"}:
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "private, no-cache"})
    return json_answer(200, document, **{"ETag": tag, "Cache-Control": "private, no-cache"})


def _away(error: psycopg.Error) -> Response:
    get_logger("submission").warning("submission.read_model_unavailable", reason=type(error).__name__)
    return refused_answer(Refused(problem=UNAVAILABLE))
