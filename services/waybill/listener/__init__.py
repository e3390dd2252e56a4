"""The listener SDK: verify, deduplicate, execute once, answer a receipt.

```python
listener = Listener(tenant="acme", destination="crm", keys="jwks.json", store=PostgresStore(dsn))

@listener.on("subject.erase")
async def erase(command: Received, transaction: psycopg.AsyncConnection) -> Done:
    cursor = await transaction.execute("DELETE FROM contact WHERE subject = %s", (command.json()["subject"],))
    return Done(source_version="contacts-7", evidence=f"crm:erasure/{command.envelope.delivery_id}", count=cursor.rowcount)
```

The fabric delivers at least once; the effect happens once because the delivery record and what the handler writes are
one transaction in one database. The same delivery again gets the stored receipt (`waybill-repeat: true`), the same id
with another body is a conflict, two of the same at once are one execution and two equal answers. A handler that
refuses (`raise Refuse(...)`) or fails leaves nothing behind, not even a record: the next attempt is a first one, so
a listener that was mended can take a redrive.

From a request to an answer: `app` (ASGI) → `receiver` (signature, checks) → `executor` (claim, handler, receipt,
commit) → `stores` (PostgreSQL, SQLite, memory, none). The decisions are in `core`. What is outside the transaction (a
mail, a call to another service) is not made once by it: give the store `effect=Effect.ELSEWHERE` and each handler a
`recover` that finds out whether an attempt acted.
"""

from waybill.contracts.codes import ErrorCode
from waybill.contracts.fabric import Profile
from waybill.contracts.receipt import ReceiptStatus
from waybill.listener.app import Listener
from waybill.listener.core.message import Done, Received, Refuse
from waybill.listener.core.policy import Block, Rule, Rules
from waybill.listener.key_source import FixedKeys, JwksFile, JwksUrl, KeySource
from waybill.listener.receiver import Limits
from waybill.listener.stores.forgetful import NoStore
from waybill.listener.stores.memory import MemoryStore
from waybill.listener.stores.port import DedupStore, Effect
from waybill.listener.stores.postgres import PostgresStore
from waybill.listener.stores.sqlite import BlockingSqliteTransaction, SqliteStore, SqliteTransaction
from waybill.listener.transaction import BlockingTransaction

__all__ = [
    "Block",
    "BlockingSqliteTransaction",
    "BlockingTransaction",
    "DedupStore",
    "Done",
    "Effect",
    "ErrorCode",
    "FixedKeys",
    "JwksFile",
    "JwksUrl",
    "KeySource",
    "Limits",
    "Listener",
    "MemoryStore",
    "NoStore",
    "PostgresStore",
    "Profile",
    "ReceiptStatus",
    "Received",
    "Refuse",
    "Rule",
    "Rules",
    "SqliteStore",
    "SqliteTransaction",
]
