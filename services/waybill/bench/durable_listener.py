"""The listener of `bench listener`: the SDK on PostgreSQL, one row of business per command.

Run by `python -m waybill.bench.durable_listener`; prints its address once it takes requests.
"""

import argparse
from pathlib import Path

from psycopg import AsyncConnection

from waybill.bench.world import COMMAND_TYPE, DESTINATION
from waybill.listener import Done, Listener, PostgresStore, Received
from waybill.listener.server import serve

__all__ = ["main"]


async def _apply(command: Received, transaction: AsyncConnection) -> Done:
    delivery = str(command.envelope.delivery_id)
    await transaction.execute("INSERT INTO business (note) VALUES (%s)", (delivery,))
    return Done(source_version="bench-1", evidence=f"urn:waybill:bench:{delivery}", count=1)


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--keys", required=True, type=Path)
    given = parser.parse_args()
    listener = Listener(
        tenant=given.tenant,
        destination=DESTINATION,
        keys=given.keys,
        store=PostgresStore(given.dsn, max_connections=20),
    )
    listener.on(COMMAND_TYPE)(_apply)
    serve(listener, on_start=lambda url: print(url, flush=True))  # noqa: T201 - whoever started it reads it


if __name__ == "__main__":
    main()
