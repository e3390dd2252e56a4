"""A client of the submission API that retries by the rules, for programs that submit over HTTP.

```python
with Client("https://waybill.example", key) as client:
    submission = client.submit({"commandType": "subject.erase", "aggregate": "subject/7", "data": {"id": 7}}, "order-4711")
    seen = client.wait(submission.commands[0], timeout_s=60)
```

Invariants:

- **A body is made once.** What is sent again after a timeout are the same bytes under the same `Idempotency-Key`.
- **A refusal is never sent again.** What was not answered, or answered 429 or 503, is, not before `Retry-After`.
- **Not knowing is an error of its own.** `AmbiguousError` says neither that commands were taken nor that they were not,
  and carries the key to ask with: `submit` the same under it again, whenever.
- **Waiting returns states.** What a command came to is what the read model says; nothing is concluded from it here.

When they do not hold, a producer issues a command twice, or believes that one was taken that was not. `core` decides and
does nothing itself; `Client` and `AsyncClient` run the same decisions. Source: docs/guides/submission-api.md.
"""

from waybill.client.asynchronous import AsyncClient
from waybill.client.core.records import AmbiguousError, Command, Delivery, RefusalError, Submission, Waited
from waybill.client.signing import RequestSigner
from waybill.client.synchronous import Client

__all__ = [
    "AmbiguousError",
    "AsyncClient",
    "Client",
    "Command",
    "Delivery",
    "RefusalError",
    "RequestSigner",
    "Submission",
    "Waited",
]
