"""The two tenants of the demonstration, their destinations and routes: the `fabric.yaml` it applies.

One producer database each. Each of the three listeners has its own way of making life hard.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waybill.testing.ledger_listener import Behaviour

__all__ = ["DISPATCH", "PRIVACY", "TENANTS", "Stop", "fabric_yaml", "stops"]

#: A privacy team: subjects.
PRIVACY: Final = "meridian"
#: A dispatch centre: incidents.
DISPATCH: Final = "harbour"
TENANTS: Final = (PRIVACY, DISPATCH)
PARTITIONS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One destination and how its listener behaves."""

    tenant: str
    name: str
    behaviour: Behaviour
    #: What to watch for, in words.
    story: str

    @property
    def key(self) -> tuple[str, str]:
        """Tenant and destination."""
        return (self.tenant, self.name)


def stops(deliveries: int) -> tuple[Stop, ...]:
    """Return the three destinations, misbehaving in proportion to the work."""
    failures, cut_off = max(5, deliveries // 20), 3
    return (
        Stop(
            tenant=PRIVACY,
            name="crm",
            behaviour=Behaviour(fail_first=failures),
            story=f"answers 503 to its first {failures} requests, then recovers",
        ),
        Stop(tenant=PRIVACY, name="archive", behaviour=Behaviour(slow_ms=200), story="takes 200 ms for every delivery"),
        Stop(
            tenant=DISPATCH,
            name="dispatch",
            behaviour=Behaviour(drop_first=cut_off),
            story=f"loses {cut_off} answers after it has committed; the relay repeats some commands too",
        ),
    )


def fabric_yaml(urls: Mapping[tuple[str, str], str], dsn_files: Mapping[str, Path]) -> str:
    """Return the file to apply.

    Args:
        urls: where each destination listens.
        dsn_files: by tenant, the absolute path of the file that holds its producer database's connection string.
    """
    return f"""\
# Written by `waybill demo`; applied to the stack it runs on.
apiVersion: waybill/v1
tenants:
  - name: {PRIVACY}
    partitions: {PARTITIONS}
    allowNetworks: [127.0.0.1/32] # the listeners of the demo run on this machine
    outboxes:
      - name: {PRIVACY}-app
        dsn: {{file: "{dsn_files[PRIVACY]}"}}
        aggregateTypes: [subject]
    destinations:
      - name: crm
        url: {urls[PRIVACY, "crm"]}/
        owner: customer-care
        profile: durable_idempotent
        tradeoff: Keeps every identifier for 30 days beside its own data; a repeat costs it one look-up.
        retry: {{base: 200ms, cap: 2s, hotAttempts: 2}}
      - name: archive
        url: {urls[PRIVACY, "archive"]}/
        owner: records-office
        profile: durable_idempotent
        tradeoff: Slow, because it writes to two places in one transaction; a repeat answers from its journal.
        retry: {{base: 200ms, cap: 2s, hotAttempts: 2}}
    routes:
      - {{type: consent.change, destinations: [crm], ttl: 1d, capability: consent}}
      - {{type: subject.restrict, destinations: [archive], ttl: 7d, capability: restrict}}
      - {{type: subject.erase, destinations: [crm, archive], ttl: 7d, capability: erase}}
  - name: {DISPATCH}
    partitions: {PARTITIONS}
    allowNetworks: [127.0.0.1/32] # the listeners of the demo run on this machine
    outboxes:
      - name: {DISPATCH}-app
        dsn: {{file: "{dsn_files[DISPATCH]}"}}
        aggregateTypes: [incident]
    destinations:
      - name: dispatch
        url: {urls[DISPATCH, "dispatch"]}/
        owner: control-room
        profile: durable_idempotent
        tradeoff: Remembers each update with the incident; a repeat costs it one look-up.
        retry: {{base: 200ms, cap: 2s, hotAttempts: 2}}
    routes:
      - {{type: incident.open, destinations: [dispatch], ttl: 1h, capability: incident}}
      - {{type: incident.update, destinations: [dispatch], ttl: 1h, capability: incident}}
      - {{type: incident.close, destinations: [dispatch], ttl: 1d, capability: incident}}
"""
