"""The door to DNS: a name's addresses, as every program on this machine would get them.

Each question has a thread of its own, which dies with the process: a name server that does not answer holds up nobody
else's question, and no exit.
"""

import asyncio
import socket
import threading

__all__ = ["resolve"]


async def resolve(host: str) -> tuple[str, ...]:
    """Return a name's addresses, each once, in the order they are to be tried.

    Raises:
        OSError: it has none, or nobody answered.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def tell(found: "tuple[str, ...] | Exception") -> None:
        if answer.done():  # nobody waits any more
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found: tuple[str, ...] | Exception = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
        except (OSError, UnicodeError) as error:
            found = error if isinstance(error, OSError) else OSError("not a name")
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=ask, name=f"resolve {host}"[:60], daemon=True).start()
    return await answer
