"""Who is delivered to: one line per destination, and the `fabric.yaml` made from them.

Listener, proxy and verdict go by the profile's name alone, so another destination is another line here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from waybill.chaos.core.mischief import Mischief

__all__ = ["AGGREGATE_TYPE", "PARTITIONS", "TENANT", "TOWN", "Place", "command_type", "fabric_yaml"]

TENANT: Final = "chaos"
OUTBOX: Final = "chaos-app"
AGGREGATE_TYPE: Final = "thing"
PARTITIONS: Final = 3
#: Where processors are scarce, requests wait for them rather than for the listener: many at a time catch up sooner.
CONCURRENCY: Final = 256
#: Where an attempt is written down before its first byte, too many at a time outlast their lease before they begin.
CAREFUL: Final = 16
#: Commands of the first kind go to every destination, those of the second to the first destination alone, so that
#: sequences differ between destinations.
KINDS: Final = ("thing.change", "thing.note")
#: One command in so many is of the first kind.
CHANGES: Final = 12

#: How many requests in a thousand each mischief hits. What fails holds its aggregate, and what comes meanwhile goes
#: the long way too: a few in a hundred keep hundreds of aggregates there. A 429 holds back the whole destination.
_LISTENER: Final[Mapping[Mischief, float]] = {
    Mischief.LISTENER_SLOW: 2,
    Mischief.LISTENER_UNAVAILABLE: 4,
    Mischief.LISTENER_LIMITED: 0.5,
    Mischief.LISTENER_HALF: 2,
    Mischief.LISTENER_LATE: 2,
}
_PROXY: Final[Mapping[Mischief, float]] = {
    Mischief.PROXY_DELAY: 3,
    Mischief.PROXY_RESET_BEFORE: 3,
    Mischief.PROXY_RESET_AFTER: 3,
    Mischief.PROXY_HALF: 2,
    Mischief.PROXY_DRIP: 2,
    Mischief.PROXY_LATE_ORIGINAL: 3,
}


def _shares(per_thousand: Mapping[Mischief, float]) -> dict[str, float]:
    return {kind.value: number / 1000 for kind, number in per_thousand.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One destination."""

    name: str
    profile: str
    tradeoff: str
    listener: Mapping[str, float] = field(default_factory=lambda: _shares(_LISTENER))
    proxy: Mapping[str, float] = field(default_factory=lambda: _shares(_PROXY))
    on_unsettled: str = "halt"
    #: Further keys of the destination in `fabric.yaml`, as written there.
    more: Mapping[str, Any] = field(default_factory=dict)


#: For a destination that nothing is offered to again: each lost answer halts an aggregate for good, so they are few.
_SELDOM: Final = _shares(dict.fromkeys((*_LISTENER, *_PROXY), 1))

TOWN: Final = (
    Place(
        name="register",
        profile="durable_idempotent",
        tradeoff="Keeps every identifier and digest in its own database; a repeat costs it one look-up.",
    ),
    Place(
        name="archive",
        profile="durable_idempotent",
        tradeoff="Answers repeats from its journal.",
        listener=_shares({**_LISTENER, Mischief.LISTENER_SLOW: 6}),
    ),
    Place(
        name="meter",
        profile="bounded_deduplication",
        tradeoff="Recognises what it saw in the last ten minutes; what came earlier it would count again.",
        more={"repeats": {"attempts": 10, "age": "5m"}, "concurrency": CAREFUL},
    ),
    Place(
        name="printer",
        profile="non_idempotent",
        tradeoff="Prints whatever arrives; what may have been printed is for people to look at.",
        listener={kind: share for kind, share in _SELDOM.items() if kind in _LISTENER},
        proxy={kind: share for kind, share in _SELDOM.items() if kind in _PROXY},
        more={"notDone": [429, 503], "concurrency": CAREFUL},
    ),
)


def command_type(number: int) -> str:
    """Return the type of the `number`-th command."""
    return KINDS[0 if number % CHANGES == 0 else 1]


def fabric_yaml(urls: Mapping[str, str], dsn_file: Path) -> str:
    """Return the file to apply; a JSON document, which is YAML too.

    Args:
        urls: by destination, where the proxy listens.
        dsn_file: absolute path of the file with the producer database's connection string.
    """
    names = [place.name for place in TOWN]
    document: dict[str, Any] = {
        "apiVersion": "waybill/v1",
        "tenants": [
            {
                "name": TENANT,
                "partitions": PARTITIONS,
                "allowNetworks": ["127.0.0.1/32"],  # the proxies run on this machine
                "outboxes": [{"name": OUTBOX, "dsn": {"file": str(dsn_file)}, "aggregateTypes": [AGGREGATE_TYPE]}],
                "destinations": [_destination(place, urls[place.name]) for place in TOWN],
                "routes": [
                    {"type": kind, "destinations": chosen, "ttl": "1d", "capability": "thing"}
                    for kind, chosen in zip(KINDS, (names, names[:1]), strict=True)
                ],
            }
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _destination(place: Place, url: str) -> dict[str, Any]:
    return {
        "name": place.name,
        "url": url,
        "owner": "chaos",
        "profile": place.profile,
        "tradeoff": place.tradeoff,
        "onUnsettled": place.on_unsettled,
        "concurrency": CONCURRENCY,
        "retry": {"base": "200ms", "cap": "2s", "hotAttempts": 1},
        "timeouts": {"connect": "2s", "read": "4s", "total": "5s"},
        **place.more,
    }
