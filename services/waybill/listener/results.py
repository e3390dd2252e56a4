"""Saying later what was done: a signed result for the topic of a destination that answered `202`.

The listener answers `202` once it can no longer forget the delivery, does the work, and publishes what came of it:

```python
signed = sign_result(result, signer, clock.now())
producer.produce(signed.topic, key=signed.key, value=signed.body, headers=list(signed.headers))
```

Any Kafka client will do, on two conditions: `acks=all`, and Java's partitioner (`partitioner=murmur2_random` for
librdkafka), since the result must lie on the partition of its command. The id of a result comes from what it says:
publishing it once more repeats it and says nothing new.
"""

import hashlib
import uuid
from dataclasses import dataclass
from datetime import datetime

from waybill.contracts.envelope import Envelope
from waybill.contracts.names import results_topic
from waybill.contracts.problem import Problem, render_problem
from waybill.contracts.receipt import Receipt, render_receipt
from waybill.contracts.result import Result, render_result
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signer

__all__ = ["SignedResult", "result_of", "sign_result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedResult:
    """What is published, as it is published."""

    topic: str
    key: bytes
    headers: tuple[tuple[str, bytes], ...]
    body: bytes


def result_of(envelope: Envelope, said: Receipt | Problem, stated_at: datetime) -> Result:
    """Return the result of a delivery: done with a receipt, or refused with a problem."""
    rendered = render_receipt(said) if isinstance(said, Receipt) else render_problem(said)
    return Result(
        result_id=uuid.uuid5(envelope.delivery_id, f"result/{hashlib.sha256(rendered).hexdigest()}"),
        tenant=envelope.tenant,
        destination=envelope.destination,
        aggregate=envelope.aggregate,
        delivery_id=envelope.delivery_id,
        stated_at=stated_at,
        receipt=said if isinstance(said, Receipt) else None,
        problem=said if isinstance(said, Problem) else None,
    )


def sign_result(result: Result, signer: Signer, now: datetime) -> SignedResult:
    """Return a result signed with the destination's own key, ready to be published.

    Raises:
        ConfigError: no key is valid now.
    """
    body, webhook_id, timestamp = render_result(result), str(result.result_id), int(now.timestamp())
    signature = signer.sign(webhook_id, timestamp, body)
    return SignedResult(
        topic=results_topic(result.tenant, result.destination),
        key=result.aggregate.encode(),
        headers=(
            (ID_HEADER, webhook_id.encode()),
            (TIMESTAMP_HEADER, str(timestamp).encode()),
            (SIGNATURE_HEADER, signature.encode()),
        ),
        body=body,
    )
