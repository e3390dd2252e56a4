"""The audit chain: what people did to the fabric, so that nobody can change it unseen.

Entries are written by PostgreSQL itself, by triggers on the tables that acts are written to. This package reads them,
anchors them under the tenant's key, and finds what was changed.
"""

from waybill.audit.core.chain import Anchor, Entry, Fault, Finding, Report, verify
from waybill.audit.signing import public_keys, sign_anchor, signed_by
from waybill.audit.store import AuditStore

__all__ = [
    "Anchor",
    "AuditStore",
    "Entry",
    "Fault",
    "Finding",
    "Report",
    "public_keys",
    "sign_anchor",
    "signed_by",
    "verify",
]
