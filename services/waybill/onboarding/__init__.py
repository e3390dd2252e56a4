"""Onboarding: the kit with which a destination team gets its first listener right.

`waybill destinations invite` writes it: who they are to the fabric, the public keys, a sandbox with keys of its own,
sample requests that verify, a listener that runs with Node alone, and a page of steps that ends with a green L1.

Invariants: nothing in a kit is a secret of the fabric. Samples and the sandbox are signed with keys made for this kit,
which no listener in production knows, and samples are expired, so that no door takes them; a shared secret is named, never
written. What breaks otherwise: a kit goes by mail, and whoever finds it could give orders.

- `core/invitation.py`: what is invited. `core/readme.py`: the steps. `kit.py`: the files. `files/`: what runs with Node.
"""

from waybill.onboarding.core.invitation import Invitation
from waybill.onboarding.kit import make_kit, write_kit

__all__ = ["Invitation", "make_kit", "write_kit"]
