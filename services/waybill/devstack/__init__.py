"""The local stack: real Kafka, Connect with Debezium, a schema registry and PostgreSQL on one machine.

No container engine and no system package is needed: programs come as Python packages and as files named, with
their hashes, by `artifacts.lock`. `plan` decides everything as data; `artifacts` fetches once and verifies;
`backends` run it; `launcher` adds names, locks and the state file. A stack is a folder: `stack.json` (ports and
generated passwords, mode 0600), one folder per service, `logs/`, `secrets/`, `keys/`. Services outlive the
launcher and are recognised by a marker on their command line, so `down` ends only its own.
"""

from waybill.devstack.launcher import down, load, names, put_secret, reset, status, up
from waybill.devstack.stack import Stack, Wanted

__all__ = ["Stack", "Wanted", "down", "load", "names", "put_secret", "reset", "status", "up"]
