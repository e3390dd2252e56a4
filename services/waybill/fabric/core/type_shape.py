"""The shape of the catalogue in `fabric.yaml`, and of what a version of a command type says."""

from typing import Final

from waybill.contracts.fabric import CommandTypeConfig, PiiClass, SchemaFormat, TypeVersion
from waybill.fabric.core.kinds import COMMAND_TYPE, OWNER, VERSION, Field, Many, Shape, choice, text_kind
from waybill.fabric.core.schema_files import MAX_DOCUMENT

__all__ = ["COMMAND_TYPE_ENTRY"]

TYPE_VERSION: Final = Shape(
    noun="type version",
    record=TypeVersion,
    fields=(
        Field(
            key="version",
            attr="version",
            kind=VERSION,
            required=True,
            meaning="Within one major, each accepts whatever the one before it accepted.",
        ),
        Field(
            key="schema",
            attr="schema",
            kind=text_kind(f"a schema of at most {MAX_DOCUMENT} characters", least=2, most=MAX_DOCUMENT, rule="schema"),
            required=True,
            meaning="The schema: as YAML, as JSON text, or `{file: PATH, digest: sha256:…}`, a file beside this one.",
        ),
        Field(
            key="example",
            attr="example",
            kind=text_kind(
                f"an example of at most {MAX_DOCUMENT} characters", least=1, most=MAX_DOCUMENT, rule="example"
            ),
            required=True,
            meaning="Data that keep the schema, as YAML or as JSON text.",
        ),
    ),
)

#: One entry of the catalogue.
COMMAND_TYPE_ENTRY: Final = Shape(
    noun="command type",
    record=CommandTypeConfig,
    fields=(
        Field(key="name", attr="name", kind=COMMAND_TYPE, required=True, meaning="What producers name."),
        OWNER,
        Field(
            key="pii",
            attr="pii",
            kind=choice(PiiClass),
            required=True,
            meaning="What its data say about people.",
        ),
        Field(
            key="description",
            attr="description",
            kind=text_kind("what is ordered by it, 1 to 2000 characters", least=1, most=2000),
            required=True,
            meaning="What is ordered by it.",
        ),
        Field(key="format", attr="format", kind=choice(SchemaFormat), meaning="What its schemas are written in."),
        Field(
            key="versions",
            attr="versions",
            kind=Many(item=TYPE_VERSION),
            required=True,
            meaning="In rising order, at least one; once applied they stay.",
        ),
    ),
)
