"""The submission API: commands over HTTP into the outbox, for systems that cannot write to its database.

`POST /v1/commands` takes one command, `POST /v1/commands:batch` up to a thousand, all or none. A submission is one
transaction of the outbox's own database: the commands, and beside them the record of what was submitted under which
`Idempotency-Key`. So what is answered `202` is committed; whether a destination applied it only its deliveries say.

`GET /v1/deliveries` reads what became of them from the read model.

Invariants:

- **One key, one submission.** The same bytes under the same key are the same submission, with the same id, however
  often and however concurrently they come; other bytes under it are a conflict. A client that got no answer asks again.
- **Who asks again is answered by rule**: at once, for a while, or by a person. Where a person has to look first, the
  submission is listed as ambiguous until somebody settles it.
- **The data stay as they came**, byte for byte: they are signed later.
- **The tenant is the key's.** Nothing of another tenant is found, by whatever id, and not found sounds the same.
- **No path without credentials** but `/healthz` and `/openapi.json`, which tell nothing of any tenant.

When they do not hold, a command is issued twice, or lost while its producer believes that it was taken. The reasons are
in docs/adr/0060-a-submission-is-one-transaction-of-the-outbox.md.
"""

from waybill.submission.app import build_app
from waybill.submission.core.resubmission import Rule, RuleKind, read_rule
from waybill.submission.submitter import Submitter

__all__ = ["Rule", "RuleKind", "Submitter", "build_app", "read_rule"]
