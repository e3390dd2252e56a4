"""The shape of what a tenant says of its ingress topic in `fabric.yaml`."""

from typing import Final

from waybill.contracts.fabric import IngressConfig
from waybill.fabric.core.kinds import COMMAND_TYPE, Field, Set, Shape

__all__ = ["INGRESS"]

INGRESS: Final = Shape(
    noun="ingress",
    record=IngressConfig,
    fields=(
        Field(
            key="commandTypes",
            attr="command_types",
            kind=Set(item=COMMAND_TYPE),
            required=True,
            meaning="What events may order; whoever may write to the topic may order all of it.",
        ),
    ),
)
