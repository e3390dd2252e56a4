"""Topics and schemas as files: what is declared, what is there, and the plan between the two.

`topics/*.yaml` declares every topic of a tenant and `avro/*.avsc` every record in them. Both follow the same three
steps. *Read*: each file is checked whole and all its faults are reported at once, with file, line, field and what
was expected. *Plan*: a pure comparison of what is declared with what the brokers or the registry hold. *Apply*:
carry out the plan and nothing else; a second run finds nothing to do.

What apply never does: raise or lower the partitions of a topic that lives (aggregates would move to another
partition and lose their order), shorten what is kept, change how a live topic is cleaned, delete anything. Such a
difference is reported as `kept`, with the reason, and stays until people decide.

All topics of a tenant have the same number of partitions, so that an aggregate has one partition number everywhere:
the count is the one its topics already have, and the asked one only for a tenant without topics.

Schemas: FULL_TRANSITIVE is set on a subject before its first version, because a registry enforces nothing until
told to. Subjects are record names (`waybill.Outcome`), shared by all tenants.
"""

from waybill.catalog.core.declaration import TopicDeclaration
from waybill.catalog.core.plan import Action, TopicChange
from waybill.catalog.schemas import SchemaResult, apply_schemas, check_schemas, load_schemas
from waybill.catalog.topics import apply_topics, load_topics, plan_topics, topics_of

__all__ = [
    "Action",
    "SchemaResult",
    "TopicChange",
    "TopicDeclaration",
    "apply_schemas",
    "apply_topics",
    "check_schemas",
    "load_schemas",
    "load_topics",
    "plan_topics",
    "topics_of",
]
