"""Going through a topic in order: a consumer group that settles each record where it lies, in lanes of nobody.

`group` reads, waits and says how far it got; `partition` is what it owns; `dead_letters` is what becomes of a record
that nobody can take. Intake goes through commands this way, and the ingress through events of producers.
"""

from waybill.delivery.ordered.dead_letters import Letter, Recorded, dead_letter
from waybill.delivery.ordered.group import OrderedGroup, Seat
from waybill.delivery.ordered.partition import CarriedPartition

__all__ = ["CarriedPartition", "Letter", "OrderedGroup", "Recorded", "Seat", "dead_letter"]
