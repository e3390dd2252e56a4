"""Who may come in: principals of a tenant, their keys, and one question every API asks.

A principal is a named holder of keys of one tenant: a producing system, a team, a program. It shows an API key, or
signs its requests. What it may do are its keys' scopes. Every door asks `Authenticator.authenticate`, or
`SignedRequests.authenticate` where the request is signed, and gets a `Principal`, or a refusal as a value; nobody else
looks at credentials.

Invariants:

- **A key is told once.** Stored is its SHA-256 alone. It is 256 random bits, so there is nothing to guess and no slow
  hash is needed; it is compared in constant time, also where no such key exists.
- **A key belongs to one tenant**, and a tenant is only ever known from a key: no request names one.
- **Keys end by themselves** and are rotated with overlap: the new one is in force before the old one ends.
- **A signed request counts once**, as it was signed: its nonce is written down before anything is done, and a body that
  is not the signed one reaches nobody whole.
- **Of a token only what the configuration names counts**: an issuer outside decides neither tenant, principal nor scope.
- **Who made, rotated or revoked what, and when, is history**: events are only added.

When they do not hold, a copy of the control database is a set of working credentials, or nobody can say who gave one
out. The reasons are in docs/adr/0059-api-keys-are-known-by-their-digest.md,
docs/adr/0076-a-signed-request-counts-once.md and docs/adr/0079-of-a-token-only-what-we-named-counts.md.
"""

from waybill.access.authenticator import Authenticator, KeyAuthenticator
from waybill.access.core.keys import Principal, Refusal, Scope
from waybill.access.keys import KeyRing, Minted
from waybill.access.signed_requests import SignedRequests

__all__ = [
    "Authenticator",
    "KeyAuthenticator",
    "KeyRing",
    "Minted",
    "Principal",
    "Refusal",
    "Scope",
    "SignedRequests",
]
