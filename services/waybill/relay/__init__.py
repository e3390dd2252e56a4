"""The relay: connector files, their linter, the canary, and recovery after slot loss.

The relay itself is Debezium in Kafka Connect; no code of ours stands where rows must not be lost. What is here makes
sure it is configured so that it cannot lose, watches it without believing it, and repairs what it cannot repair.

*Declare.* `connect/*.json` is rendered per outbox (`OutboxConnection`) and linted; each rule is a setting that once
lost, repeated or stalled somebody's rows. `ensure_slot` makes the slot, before the first row may exist;
`ensure_connector` checks database, slot and stored offset, puts the configuration and proves that the task runs.

*Watch.* A connector that says RUNNING may be stalled: a missing topic blocks its producer for ever and its own lag
metric stays near zero. So `observe` judges by what came through: the age of the last heartbeat on its topic, the
slot's lag and `wal_status`, tasks that exist; and `run_canary` sends a row end to end.

*Repair.* One connector is one ordered pipe, and a lost slot is a hole in it. `recover` makes a new slot with a
snapshot exported at exactly its starting point, so that every row is either visible in the snapshot or will be
streamed, never both and never neither. What the snapshot shows and the topic lacks is published again, in order,
with the bytes Debezium would have written, and only then the connector starts. It is safe to run at any time and to
run twice: a healthy pipe ends with nothing republished.

The promise (DC-5): the relay may publish a record twice, but it never loses one, and within one aggregate never
reorders. Readers deduplicate by command id.
"""

from waybill.relay.canary import CanaryResult, run_canary
from waybill.relay.connectors import EnsureResult, ensure_connector, ensure_slot, lint_files, render_connector
from waybill.relay.core.connection import OutboxConnection, OutboxKind
from waybill.relay.core.lint import LintFault
from waybill.relay.recover import RecoverResult, Recovery, recover
from waybill.relay.status import observe

__all__ = [
    "CanaryResult",
    "EnsureResult",
    "LintFault",
    "OutboxConnection",
    "OutboxKind",
    "RecoverResult",
    "Recovery",
    "ensure_connector",
    "ensure_slot",
    "lint_files",
    "observe",
    "recover",
    "render_connector",
    "run_canary",
]
