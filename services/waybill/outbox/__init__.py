"""The transactional outbox: the only way in for whatever must be atomic with a database row.

A command is one row of `<schema>.outbox`, written by `emit` in the transaction that changes the producer's own data:
both commit or neither does. The relay (Debezium, in Kafka Connect) carries committed rows into the tenant's topic.
Everything about a command is fixed here and by nobody later: its id, its number per aggregate and destination, its
expiry, the configuration it was resolved against.

What the database itself holds true, whoever writes and in whatever language:

- **Numbers are 1..n** per aggregate and destination. One counter row per aggregate is updated under its row lock,
  which is held to the commit, so insert order is commit order and a rollback gives the number back.
- **An issued command never changes.** Triggers refuse UPDATE, DELETE and TRUNCATE to everybody, the owner too.
- **Nothing unproducible gets in.** One row that Kafka cannot take stops every tenant of the outbox, so sizes, routes
  and shapes are checked on the way in, and JSON is exactly one JSON value: it is spliced into the signed body as it is.
- **The application can only emit.** It has EXECUTE on the emit functions and no right on any table. With INSERT instead
  it could give itself any number, id or expiry, and would need UPDATE on the counters. So the functions are SECURITY
  DEFINER, with a fixed search path and schema-qualified names.
- **Days are dropped behind the relay.** Rows stay for days, since they are what a lost replication slot is repaired from.

`Outbox` and `AsyncOutbox` are the SDK over the same functions; `provision` writes applied configuration,
`check` looks a database over, `housekeeping` makes and drops day partitions. What a statement may be refused for is
`core.rules`. Source of the design: docs/guides/outbox.md.
"""

from waybill.outbox.core.draft import CommandDraft, Emitted
from waybill.outbox.core.rules import Rule
from waybill.outbox.core.settings import OutboxSettings
from waybill.outbox.sdk import AsyncOutbox, Collected, Outbox, is_retryable

__all__ = [
    "AsyncOutbox",
    "Collected",
    "CommandDraft",
    "Emitted",
    "Outbox",
    "OutboxSettings",
    "Rule",
    "is_retryable",
]
