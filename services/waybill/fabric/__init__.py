"""Applied configuration: read `fabric.yaml`, plan the step, take it in a safe order, follow it while running.

A person reviews a file; `apply` turns it into versioned rows of the control database and makes the world around them
agree. Four parts, each usable alone:

- `core.parse` reads the file and names everything that is wrong with it: line, field, what was expected, the rule.
  `core.shape` declares every key once; the reader, the stored objects and the reference page follow it.
- `core.plan` compares what is applied with what is wanted, by meaning. Names are never reused or renamed, so what
  has been applied stays in the file; only routes may leave it. A step that would break order or identity is refused.
- `Applier` takes the steps. Topics and the committed start of every consumer group exist before a route does, and a
  replication slot before the first row that needs it. Every step is idempotent and every run takes all of them, so an
  apply that was killed is finished by repeating it.
- `ConfigFollower` is what running processes hold: the newest version within about a second of its commit, the last
  known one while the database is away.

Versions rise by one with each apply that changed something. Commands carry the version their routes were resolved
against and outcomes the version they were settled under, so rows are only ever added. Each changed object also goes
to the tenant's compacted `config` topic through the control database's own outbox, in the same transaction.

The component knows no broker, registry or connector: `ports` says what it needs, the command line puts it together.
"""

from waybill.fabric.applier import Applier, Result, Step
from waybill.fabric.core.document import Problem
from waybill.fabric.core.objects import render
from waybill.fabric.core.parse import parse
from waybill.fabric.core.plan import Plan, plan
from waybill.fabric.follow import ConfigFollower
from waybill.fabric.ports import Drift, OutboxView, Ports
from waybill.fabric.store import Applied, FabricStore

__all__ = [
    "Applied",
    "Applier",
    "ConfigFollower",
    "Drift",
    "FabricStore",
    "OutboxView",
    "Plan",
    "Ports",
    "Problem",
    "Result",
    "Step",
    "parse",
    "plan",
    "render",
]
