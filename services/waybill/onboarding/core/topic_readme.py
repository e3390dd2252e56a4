"""The page of a kit for a destination that takes its deliveries from Kafka: topics, group, rights, and the steps."""

import json
import shlex
from string import Template
from typing import Final

from waybill.contracts.names import deliveries_topic, listener_group, results_topic
from waybill.onboarding.core.invitation import Invitation, TopicDoor
from waybill.onboarding.core.readme import checked_types, kept_keys, run_checks

__all__ = ["render_topic_readme"]

_PAGE: Final = Template("""# Your listener for $tenant/$destination

You will receive commands of tenant `$tenant` as destination `$destination`, each as a signed record of a Kafka topic.
You verify it, do it once however often it comes, and say what you did in another topic, signed with a key of your own.
This folder has all you need to try that with Python 3.11 or newer and `pip install 'waybill[listener-kafka,cli]'`.

| what | where |
| --- | --- |
| you read | `$deliveries` |
| in the consumer group | `$group`; the fabric watches it to know what you have read |
| you write | `$results`, on the partition number of the delivery |
| the brokers | `$brokers` |
| the command types you are asked to serve | $types |
| the level that is expected | `$level`; the listener in here keeps `L1` |
| what you declare you can bear | `$profile` |
| the public keys of production | $keys |
| keys for trying, made for this kit and used nowhere else | `sandbox/` |
| one signed record of each type: key, headers, value | `samples/` |
| a listener to start from | `listener/app.py` |

The operator makes the topics; brokers make none by themselves. Read `read_committed`, and commit an offset only when its delivery is done, or refused for good: `waybill listen` does both.

## 1. See that the samples verify

```bash
python verify.py
```

Each line names a sample, and that its signature is good and its value is read.
The samples are old and expired on purpose: a running listener answers them with a refusal.

## 2. Run the listener through the checks

```bash
$run
```

The same handlers serve requests and records, so they are checked over HTTP, without a broker: deliveries, repeats, forgeries, kills. It ends with `reached: L1`.

## 3. Make it yours

Put what a command means to you into the handler in `listener/app.py`; what it writes through `transaction` is kept together with the record of the delivery, or not at all.
Its store is a SQLite file for one process. With PostgreSQL take `PostgresStore` of the SDK.
Run step 2 again after each change.

## 4. Make your own key for results

```bash
waybill keys new --tenant $destination --keys-dir results-keys
waybill keys list --tenant $destination --keys-dir results-keys --json
```

Without a result in your name nothing closes a delivery. `results-keys/$destination/signing.json` stays with you; `public` in the list, which begins with `whpk_`, goes back.

## 5. Send back

- your public key, `whpk_…`;
- the name under which the brokers know you;
- whom to tell when results stay away.

The fabric's operator then declares you, which makes the topics:

```yaml
$declaration
```

and gives you these rights, and no others, where the brokers ask for rights:

```console
$acls
```

## 6. Go to production

In `listener/`, as many processes as there are partitions; they share them:

```sh
$listen
```

Never with a sandbox key: `WAYBILL_JWKS` names the keys of production.
It ends with SIGTERM, after what is under way. `http://127.0.0.1:9100/readyz` says whether it reads, executes and publishes; `/metrics` counts what it does.
A record that is not signed for you is counted and passed over, and nobody is told: look at the count when deliveries wait in vain.
Keys rotate: $rotation
""")


def render_topic_readme(invited: Invitation, door: TopicDoor) -> str:
    """Return the page; its `bash` blocks can be run one after the other in the folder of the kit."""
    tenant, destination = invited.tenant, invited.destination
    group = door.group or listener_group(tenant, destination)
    is_followed = invited.keys_url is not None
    return _PAGE.substitute(
        tenant=tenant,
        destination=destination,
        deliveries=deliveries_topic(tenant, destination),
        results=results_topic(tenant, destination),
        group=group,
        brokers=door.brokers,
        types=checked_types(invited),
        level=invited.level.value,
        profile=invited.profile.value,
        keys=kept_keys(invited),
        run=run_checks(invited, "python listener/app.py"),
        declaration=_declaration(invited, door),
        acls="\n".join(_acls(invited, door, group)),
        listen=_listen(invited, door),
        rotation="the URL is followed by itself." if is_followed else "a new file is sent to you in time; replace it.",
    )


def _declaration(invited: Invitation, door: TopicDoor) -> str:
    lines = [
        f"- name: {invited.destination}",
        "  transport: kafka",
        *([f"  listenerGroup: {door.group}"] if door.group else []),
        "  owner: …",
        f"  profile: {invited.profile.value}",
        f"  level: {invited.level.value}",
        f"  tradeoff: {json.dumps('…', ensure_ascii=False)}",
        "  results:",
        "    keys: [whpk_…]",
        "    wait: 1h",
    ]
    return "\n".join(lines)


def _acls(invited: Invitation, door: TopicDoor, group: str) -> list[str]:
    to, who = ["kafka-acls", "--bootstrap-server", door.brokers], f"User:{invited.destination}"
    rights = [
        ["--operation", "Read", "--operation", "Describe", "--topic", deliveries_topic(invited.tenant, invited.destination)],
        ["--operation", "Read", "--group", group],
        ["--operation", "Write", "--operation", "Describe", "--topic", results_topic(invited.tenant, invited.destination)],
    ]  # fmt: skip
    return [f"$ {shlex.join([*to, '--add', '--allow-principal', who, *each])}" for each in rights]


def _listen(invited: Invitation, door: TopicDoor) -> str:
    line = ["waybill", "listen", "app:listener", "--kafka", door.brokers]
    line += ["--results-key", f"../results-keys/{invited.destination}/signing.json"]
    line += ["--group", door.group] if door.group else []
    return f"WAYBILL_JWKS={invited.keys_url or '../keys/jwks.json'} {shlex.join([*line, '--metrics-port', '9100'])}"
