"""The read model: what happened to each delivery, folded from the topics, disposable.

It reads each tenant's `commands`, `state`, `outcomes` and `dead-letters`, read committed, and writes PostgreSQL
schema `read` of the control database: one row per delivery, every attempt, every move, every dead letter, and
what should not be there. Nothing decides from it what is delivered; people, the CLI and APIs ask it what happened,
what is next, who owns it and by when.

- `core/fold.py` turns a batch into rows. Existence in `commands` is *queued*; a state counts when its version is
  higher; attempts and moves are kept once per id. So the order in which topics interleave does not matter, and a
  rebuild gives the same rows.
- `core/numbering.py` verifies that numbers are 1..n per aggregate and destination, and each used once.
- `core/explain.py` answers the four questions.
- `projector.py` is the loop; its positions live in the database beside the rows and move in the same transaction,
  so a crash is a repeat of a batch that was never written. It belongs to no consumer group; it shows its positions
  to Kafka tools all the same.
- `waybill read-model rebuild` empties everything and folds again. What retention removed from the topics is gone
  then too: keep `commands` longer than you want to ask questions.
"""

from waybill.readmodel.main import Places, build_projector, run
from waybill.readmodel.projector import Settings
from waybill.readmodel.query import DeliveryFilter, ReadModel
from waybill.readmodel.store import MIGRATIONS, SCHEMA, PostgresStore, prepare

__all__ = [
    "MIGRATIONS",
    "SCHEMA",
    "DeliveryFilter",
    "Places",
    "PostgresStore",
    "ReadModel",
    "Settings",
    "build_projector",
    "prepare",
    "run",
]
