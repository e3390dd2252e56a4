"""The delivery worker: every command reaches each destination it names, in order, and what happened is recorded.

The happy path touches Kafka only: a record becomes the head of its aggregate's lane, is rendered, signed and sent,
and its outcome, state and offset are committed in one transaction per micro-batch. Whatever is not happy becomes a
row in PostgreSQL *before* its offset counts as done and lives there until no move is left. A crash may send again
what a durable listener has already answered; it answers the same again.

Threads: one per consumer (`reader`), one for transactions (`committer`), one loop for everything else. All
decisions are in `core`, pure; `actor` is the owner of one partition, `group` one destination, `worker` a process.

Who may write is checked at every write: Kafka gets p's offset with the group metadata of its assignment in every
transaction that says anything about p, PostgreSQL checks the epoch of the assignment in the statement that writes.
"""

from waybill.delivery.worker import Worker, WorkerParts, WorkerSettings

__all__ = ["Worker", "WorkerParts", "WorkerSettings"]
