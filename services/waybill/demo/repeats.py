"""The relay's right to repeat, used: some commands are put into their topic once more, to the last byte.

A connector that dies between Kafka and its own bookkeeping does the same (DC-5). It is done here on purpose and
through nothing but Kafka, so that what follows is the fabric's own doing.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from waybill.contracts.names import commands_topic
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import Tenant

__all__ = ["repeat_commands"]

SEARCH_S: Final = 20.0


def repeat_commands(bootstrap: str, tenant: str, commands: Collection[UUID]) -> int:
    """Produce the records of these commands again, each on its own partition; return how many.

    Raises:
        UnavailableError: a record is not in the topic, or the broker does not take it again.
    """
    topic = commands_topic(Tenant(tenant))
    records = _find(bootstrap, topic, {str(command).encode() for command in commands})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for record in records:
        producer.produce(
            topic,
            value=record.value(),
            key=record.key(),
            headers=record.headers(),
            partition=record.partition() or 0,
        )
    if left := producer.flush(SEARCH_S):
        raise UnavailableError(f"Kafka at {bootstrap} did not take {left} repeated records")
    return len(records)


def _find(bootstrap: str, topic: str, wanted: set[bytes]) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "waybill.demo",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    clock = SystemClock()
    found: dict[bytes, Message] = {}
    try:
        partitions = consumer.list_topics(topic, timeout=SEARCH_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        deadline = clock.monotonic() + SEARCH_S
        while len(found) < len(wanted):
            if clock.monotonic() > deadline:
                raise UnavailableError(f"{len(wanted) - len(found)} commands are not in {topic}")
            for message in consumer.consume(500, 0.2):
                identity = dict(message.headers() or []).get("ce_id")
                if message.error() is None and isinstance(identity, bytes) and identity in wanted:
                    found.setdefault(identity, message)
    finally:
        consumer.close()
    return list(found.values())
