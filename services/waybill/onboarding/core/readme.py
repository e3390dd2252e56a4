"""The page of a kit: steps in order, each with a command and what it shows."""

import json
import shlex
from string import Template
from typing import Final

from waybill.onboarding.core.invitation import Invitation

__all__ = ["checked_types", "kept_keys", "render_readme", "run_checks"]


_PAGE: Final = Template("""# Your listener for $tenant/$destination

You will receive commands of tenant `$tenant` as destination `$destination`, each as a signed POST to one URL of yours.
You verify it, do it once however often it comes, and answer with a receipt.
This folder has all you need to try that with Node 20 or newer; nothing is installed.

| what | where |
| --- | --- |
| the command types you are asked to serve | $types |
| the level that is expected | `$level`; the listener in here keeps `L1` |
| what you declare you can bear | `$profile` |
| the public keys of production | $keys |
| keys for trying, made for this kit and used nowhere else | `sandbox/` |
| one signed request of each type | `samples/` |
| a listener to start from | `listener/app.mjs` |
| the package it uses | `waybill-listener/` |

## 1. See that the samples verify

```bash
node verify.mjs
```

Each line names a sample, and that its signature is good and its body is read.
The samples are old and expired on purpose: a running listener refuses them for their time.

## 2. Run the listener through the checks

```bash
$run
```

It starts `listener/app.mjs`, sends it deliveries, repeats and forgeries, kills it and starts it again, and ends with `reached: L1`.
`waybill` is a Python program (3.11 or newer); who sent you this kit can run the same against a URL of yours and send you the result.

## 3. Make it yours

Put what a command means to you into the handler in `listener/app.mjs`; what it writes through `journal` is kept together with the record of the delivery, or not at all.
The journal is a file for one process. With PostgreSQL or SQLite take the stores of the package instead, and write through the transaction you are given.
Run step 2 again after each change.

## 4. Make your own key for results

```bash
node results-key.mjs
```

It writes `results-private.jwk`, which stays with you, and `results-jwks.json`, which you send back.
It proves who stated a receipt, or a result that is told later than with the answer; the wire page of Waybill's documentation says how they are signed.
Receipts the package signs: give the listener a `signer`, `ReceiptSigner.fromJwk(…)` of that file.

## 5. Send back

- the URL that takes deliveries in production, https, without a user in it;
- `results-jwks.json`;
- whom to tell when it does not answer.

The fabric's operator then declares you:

```yaml
$declaration
```

## 6. Go to production

Start your listener with `WAYBILL_JWKS` naming $production_keys in place of the sandbox's file, and never with a sandbox key.
${secret}Keys rotate: $rotation
""")


def render_readme(invited: Invitation) -> str:
    """Return the page; its `bash` blocks can be run one after the other in the folder of the kit."""
    is_followed = invited.keys_url is not None
    return _PAGE.substitute(
        tenant=invited.tenant,
        destination=invited.destination,
        types=checked_types(invited),
        level=invited.level.value,
        profile=invited.profile.value,
        keys=kept_keys(invited),
        run=run_checks(invited, "node listener/app.mjs"),
        declaration=_declaration(invited),
        production_keys=f"`{invited.keys_url or 'keys/jwks.json'}`",
        secret=_secret(invited),
        rotation="the URL is followed by itself." if is_followed else "a new file is sent to you in time; replace it.",
    )


def checked_types(invited: Invitation) -> str:
    """Name each type; one that is in the catalogue leads to its page."""
    pages = {each.name for each in invited.catalogue}
    return ", ".join(f"[`{each}`](types/{each}.md)" if each in pages else f"`{each}`" for each in invited.command_types)


def run_checks(invited: Invitation, start: str) -> str:
    """Return the line that runs a listener of the kit through the checks, with the sandbox's keys."""
    return shlex.join(
        [
            *("waybill", "conformance", "--run", start, "--effects", "/effects"),
            *("--level", "L1", "--profile", invited.profile.value, "--keys-dir", "sandbox"),
            *("--tenant", invited.tenant, "--destination", invited.destination, "--type", invited.command_types[0]),
        ]
    )


def kept_keys(invited: Invitation) -> str:
    """Say where the public keys of production are."""
    return f"`keys/jwks.json`, and {invited.keys_url} while they rotate" if invited.keys_url else "`keys/jwks.json`"


def _secret(invited: Invitation) -> str:
    if not invited.has_secret:
        return ""
    return "A shared secret (`whsec_…`) signs `v1` beside; it is handed over by another way and belongs into `WAYBILL_SECRET`.\n"


def _declaration(invited: Invitation) -> str:
    lines = [
        f"- name: {invited.destination}",
        "  url: https://…",
        "  owner: …",
        f"  profile: {invited.profile.value}",
        f"  level: {invited.level.value}",
        f"  tradeoff: {json.dumps('…', ensure_ascii=False)}",
    ]
    return "\n".join(lines)
