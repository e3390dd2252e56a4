"""Makes the files of a kit and writes them as a folder or a zip.

The sandbox's keys are made with the kit. Samples are signed with them, at the time the kit was made, and expired a
millisecond after they were issued.
"""

import io
import json
import tempfile
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from waybill.commandtypes import Checked, Given, KnownType, check_data
from waybill.commandtypes.core.pages import type_page
from waybill.commandtypes.core.versions import default_of
from waybill.conformance.core.commands import Cast, make_command
from waybill.conformance.keys import ensure_keys, shared_secret
from waybill.conformance.sender import Letter, signed_headers
from waybill.contracts.envelope import delivery_id_text, render
from waybill.contracts.fabric import Rendering
from waybill.contracts.names import deliveries_topic, listener_group, results_topic
from waybill.crypto.keys import jwks_path
from waybill.crypto.signing import Signer, load_signer
from waybill.infra.resources import resource_dir
from waybill.kernel.errors import ConfigError
from waybill.onboarding.core.invitation import Invitation, TopicDoor
from waybill.onboarding.core.readme import render_readme
from waybill.onboarding.core.topic_readme import render_topic_readme

__all__ = ["make_kit", "write_kit"]

_FILES: Final = Path(__file__).parent / "files"
#: Only their owner reads these, where the file system knows owners.
_PRIVATE: Final = frozenset({"signing.json", "secret.txt"})


def make_kit(invited: Invitation, keys_dir: Path, now: datetime) -> dict[str, bytes]:
    """Return the files of a kit by their path in it.

    Args:
        invited: for whom.
        keys_dir: where the tenant's public keys are; nothing private of it is read.
        now: when the samples say they were signed.

    Raises:
        ConfigError: the tenant has no public keys; says what makes them.
        UnavailableError: this installation lacks the Node package.
    """
    public = jwks_path(keys_dir, invited.tenant)
    if not public.is_file():
        raise ConfigError(f"no public keys {public}: `waybill keys new --tenant {invited.tenant}` makes them")
    files = {"kit.json": _facts(invited, now), "keys/jwks.json": public.read_bytes()}
    files |= _for_requests(invited) if invited.topic is None else _for_a_topic(invited, invited.topic)
    files |= {f"types/{each.name}.md": type_page(invited.tenant, each).encode() for each in invited.catalogue}
    return files | _sandbox(invited, now)


def _for_requests(invited: Invitation) -> dict[str, bytes]:
    """Return the page and what runs with Node alone."""
    package = resource_dir("services/listener-typescript")
    files = {
        "README.md": render_readme(invited).encode(),
        "listener/app.mjs": (_FILES / "app.mjs").read_bytes(),
        "listener/journal.mjs": (_FILES / "journal.mjs").read_bytes(),
        "verify.mjs": (_FILES / "verify.mjs").read_bytes(),
        "results-key.mjs": (_FILES / "results-key.mjs").read_bytes(),
        "waybill-listener/package.json": (package / "package.json").read_bytes(),
    }
    return files | {f"waybill-listener/src/{path.name}": path.read_bytes() for path in (package / "src").glob("*.js")}


def _for_a_topic(invited: Invitation, door: TopicDoor) -> dict[str, bytes]:
    """Return the page and what runs with the Python SDK."""
    return {
        "README.md": render_topic_readme(invited, door).encode(),
        "listener/app.py": (_FILES / "app.py.in").read_bytes(),
        "verify.py": (_FILES / "verify.py.in").read_bytes(),
    }


def _facts(invited: Invitation, now: datetime) -> bytes:
    facts = {
        "tenant": invited.tenant,
        "destination": invited.destination,
        "command_types": list(invited.command_types),
        "level": invited.level.value,
        "profile": invited.profile.value,
        "keys_url": invited.keys_url,
        "made_on": f"{now:%Y-%m-%d}",
    }
    if invited.topic is not None:
        facts |= {
            "deliveries": deliveries_topic(invited.tenant, invited.destination),
            "results": results_topic(invited.tenant, invited.destination),
            "group": invited.topic.group or listener_group(invited.tenant, invited.destination),
        }
    return json.dumps(facts, indent=2).encode() + b"\n"


def _sandbox(invited: Invitation, now: datetime) -> dict[str, bytes]:
    """Make the kit's own keys, and the samples they sign."""
    with tempfile.TemporaryDirectory(prefix="waybill-kit-") as scratch:
        folder = Path(scratch)
        ensure_keys(folder, invited.tenant, now)
        signer = load_signer(folder, invited.tenant, shared_secret(folder, invited.tenant))
        names = ("signing.json", "jwks.json", "secret.txt")
        files = {f"sandbox/{invited.tenant}/{name}": (folder / invited.tenant / name).read_bytes() for name in names}
    return files | {f"samples/{kind}.json": _sample(invited, kind, signer, now) for kind in invited.command_types}


def _sample(invited: Invitation, kind: str, signer: Signer, now: datetime) -> bytes:
    cast = Cast(tenant=invited.tenant, destination=invited.destination, command_type=kind, data={})
    made = make_command(cast, uuid.uuid4(), f"sample/{uuid.uuid4()}", now)
    command = replace(
        made, source="urn:waybill:onboarding", expires_at=now + timedelta(milliseconds=1), **_example(invited, kind)
    )
    letter = Letter(
        webhook_id=delivery_id_text(command.command_id, invited.destination),
        body=render(command, invited.destination),
    )
    headers = signed_headers(letter, signer, int(now.timestamp()))
    sample: dict[str, object] = {"method": "POST", "headers": headers, "body": letter.body.decode()}
    if invited.topic is not None:
        topic = deliveries_topic(invited.tenant, invited.destination)
        sample = {"topic": topic, "key": command.aggregate, "headers": headers, "value": letter.body.decode()}
    return json.dumps(sample, indent=2).encode() + b"\n"


def _example(invited: Invitation, kind: str) -> dict[str, Any]:
    """Return the data of the catalogue's example, and the version they keep; nothing where it lacks the type."""
    for declared in invited.catalogue:
        if declared.name == kind:
            version = default_of([each.version for each in declared.versions])
            example = next(each.example for each in declared.versions if each.version == version)
            schemas = {each.version: each.schema for each in declared.versions}
            known = KnownType(
                format=declared.format,
                versions=schemas,
                rendering=Rendering.JSON if kind in invited.as_json else Rendering.AVRO,
            )
            given = Given(named=None, content_type="application/json", data=example.encode())
            found = check_data(invited.tenant, kind, known, given)
            assert isinstance(found, Checked)  # the catalogue has no example that does not keep its schema
            return {"data": found.data, "data_schema": found.data_schema, "content_type": found.content_type}
    return {}


def write_kit(files: Mapping[str, bytes], out: Path) -> None:
    """Write a kit into a folder, or into one zip where the name ends so.

    Raises:
        ConfigError: there is something already, which stays, or it cannot be written.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError(f"{out} is there already and stays as it is: name another --out")
    try:
        if out.suffix == ".zip":
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(_zipped(files, out.stem))
            return
        for name, content in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600 if path.name in _PRIVATE else 0o644)
            path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{out}: {error.strerror}") from error


def _zipped(files: Mapping[str, bytes], folder: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o600 if Path(name).name in _PRIVATE else 0o644) << 16
            archive.writestr(entry, content)
    return packed.getvalue()
