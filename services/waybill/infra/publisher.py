"""Publishing single records from an event loop, each answered for once the brokers have it.

One thread polls; a record is placed where it is told, or by its key as Java clients place it (murmur2), so that an
aggregate keeps its partition.
The producer is idempotent, so a record that was acknowledged is there once; one that was not may be there.
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from waybill.kernel.errors import UnavailableError

__all__ = ["Publisher"]

_POLL_S: Final = 0.1
#: Where the key leads.
_BY_KEY: Final = -1


class Publisher:
    """A producer for one event loop; it connects with the first record."""

    def __init__(self, bootstrap: str, client_id: str, *, within_s: float = 5.0) -> None:
        """Keep the address.

        Args:
            bootstrap: of the brokers.
            client_id: the name they see.
            within_s: how long a record may take until it is given up.
        """
        self._bootstrap, self._client_id, self._within_s = bootstrap, client_id, within_s
        self._producer: Any = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    async def publish(
        self, topic: str, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]], partition: int = _BY_KEY
    ) -> None:
        """Write one record and return when every in-sync replica has it.

        Raises:
            UnavailableError: the brokers did not say that they have it; they may have it all the same.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def reported(error: KafkaError | None, _message: Any) -> None:
            loop.call_soon_threadsafe(_settle, done, error)

        try:
            self._open().produce(topic, value, key, partition, headers=list(headers), on_delivery=reported)
        except (BufferError, KafkaException) as error:
            raise UnavailableError("the brokers take no records now") from error
        await done

    def close(self) -> None:
        """Give up what is under way and let the connections go."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def _open(self) -> Any:
        if self._producer is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "client.id": self._client_id,
                    "enable.idempotence": True,
                    "message.timeout.ms": int(self._within_s * 1000),
                    "partitioner": "murmur2_random",
                    "linger.ms": 2,
                    "log_level": 0,
                }
            )
            self._thread = threading.Thread(target=self._poll, name="waybill-publisher", daemon=True)
            self._thread.start()
        return self._producer

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_POLL_S)


def _settle(done: "asyncio.Future[None]", error: KafkaError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(UnavailableError(f"the brokers did not take the record: {error.name()}"))
