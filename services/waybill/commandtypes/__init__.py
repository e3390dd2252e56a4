"""The catalogue of command types: what the data of each may be, and how that may change.

A tenant may declare its command types in `fabric.yaml`: owner, class of personal data, schema, example. Whoever
sends data that break the schema is refused before anything is stored, and whoever changes a schema so that data
which were right become wrong is refused before anything is applied. A command type that is not declared carries
whatever its producers send.

- `core.versions`: a version is `v<major>.<minor>`, and every version has a URI that commands carry as `dataschema`.
- `core.json_schema`: whether a schema is one, and whether data keep it. What is refused is named by JSON Pointer,
  and by keyword of the schema; never by the data, not even by a member's name that the schema does not know.
- `core.narrowing`: whether a schema accepts all that another accepted, decided by rules that may refuse a harmless
  change and never accept a harmful one.
- `core.avro`, `core.avro_resolution`: the same of Avro, where each version of a major reads each other, and the two forms of
  Avro data.
- `core.asyncapi`, `core.pages`: the catalogue for people and their tools.
- `core.checking`: one command against the versions that are known of its type.

Everything here is a pure function; who holds the versions (the control database, an outbox) hands them in.
"""

from waybill.commandtypes.core.checking import Checked, Given, KnownType, Objection, Refused, check_data
from waybill.commandtypes.core.versions import schema_uri

__all__ = ["Checked", "Given", "KnownType", "Objection", "Refused", "check_data", "schema_uri"]
