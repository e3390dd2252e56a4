"""A listener for `waybill conformance`: the SDK, one business table, and its own count of effects.

    waybill conformance --run 'python app.py' --effects /effects --level L3 --blocked '{"hold": true}'

`DSN` names the PostgreSQL database of the business table.
"""

import json
import os
from typing import Any

import psycopg

from waybill.listener import Done, ErrorCode, Limits, Listener, PostgresStore, Received, Refuse
from waybill.listener.server import serve

DSN = os.environ["DSN"]

listener = Listener(
    tenant=os.environ["WAYBILL_TENANT"],
    destination=os.environ["WAYBILL_DESTINATION"],
    keys=os.environ["WAYBILL_JWKS"],
    store=PostgresStore(DSN),
    limits=Limits(in_order=True),
)


@listener.on(os.environ["WAYBILL_COMMAND_TYPE"])
async def check(command: Received, transaction: psycopg.AsyncConnection) -> Done:
    """Do the work in the delivery's own transaction."""
    data = command.json()
    if data.get("hold"):
        raise Refuse(ErrorCode.POLICY_BLOCK, "legal_hold")
    delivery = str(command.envelope.delivery_id)
    await transaction.execute("INSERT INTO effect (delivery) VALUES (%s)", (delivery,))
    return Done(source_version="effects-1", evidence=f"effect/{delivery}", count=1)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer the count; everything else is the listener's."""
    if scope["type"] != "http" or scope["path"] != "/effects":
        await listener(scope, receive, send)
        return
    async with await psycopg.AsyncConnection.connect(DSN) as connection:
        row = await (await connection.execute("SELECT count(*) FROM effect")).fetchone()
    assert row is not None
    body = json.dumps({"count": row[0]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    with psycopg.connect(DSN) as made:
        made.execute("CREATE TABLE IF NOT EXISTS effect (delivery text NOT NULL)")
    serve(app, port=int(os.environ["PORT"]), on_start=print)
