"""Writes the lock file anew: resolves what the local stack needs and hashes every file. Needs the network.

Run when a version below changes (`waybill dev lock > services/waybill/devstack/artifacts.lock`), then look at the
difference: a start uses exactly what that file names and resolves nothing.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from waybill.devstack.artifacts import Locked

__all__ = ["lock_text", "resolve"]

#: Resolved with what they depend on. The mark `!` keeps a root from acting as a bill of materials for the others:
#: without it the logging library's own build file chose the Kafka client, a version behind the broker's.
ROOTS: Final = (
    "org.apache.kafka:kafka_2.13:4.4.0!",
    "org.apache.kafka:connect-runtime:4.4.0!",
    "org.apache.kafka:kafka-tools:4.4.0!",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5!",  # without it every server logs nothing
)
#: Archives taken whole: group, artifact, version, classifier, place in the cache.
ARCHIVES: Final = (
    ("io.debezium", "debezium-connector-postgres", "3.7.0.Final", "plugin", "debezium"),
    ("io.apicurio", "apicurio-registry-app", "3.3.3", "all", "registry"),
)
HEADER: Final = """\
# What the local stack downloads once: sha256, bytes, group:artifact:version:packaging:classifier, place in the cache.
# Written by `waybill dev lock`; every file is checked against this list before it is used.
"""


def lock_text(entries: Iterable[Locked]) -> str:
    """Return the lock file: jars by name, then archives."""
    ordered = sorted(entries, key=lambda entry: (entry.packaging != "jar", entry.coordinates))
    return HEADER + "".join(f"{entry.line}\n" for entry in ordered)


def resolve(folder: Path) -> list[Locked]:
    """Resolve everything into a scratch folder and return it with sizes and hashes."""
    import jgo.maven

    context = jgo.maven.MavenContext(repo_cache=folder, timeout=60)
    roots, others = context.resolver.resolve([context.create_dependency(root) for root in ROOTS])
    wanted = {str(d.artifact): d.artifact for d in (*roots, *others) if d.scope in (None, "compile", "runtime")}
    entries = [_locked(artifact, "kafka") for artifact in wanted.values()]
    for group, name, version, classifier, place in ARCHIVES:
        component = context.project(group, name).at_version(version)
        entries.append(_locked(component.artifact(classifier=classifier, packaging="tar.gz"), place))
    return entries


def _locked(artifact: Any, place: str) -> Locked:
    content = Path(artifact.resolve()).read_bytes()
    return Locked(
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        group=artifact.groupId,
        artifact=artifact.artifactId,
        version=artifact.version,
        packaging=artifact.packaging,
        classifier=artifact.classifier or "",
        place=place,
    )
