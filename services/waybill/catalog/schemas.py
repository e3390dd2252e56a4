"""Schema files against the registry: lint, compatibility, registration, in that order.

FULL_TRANSITIVE is set on every subject before the first version is offered, and the check is asked for separately,
so that an incompatible change is refused with the registry's own words and nothing is registered at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from waybill.catalog.core.avro_lint import lint_schema
from waybill.infra.registry import Registry
from waybill.infra.resources import resource_dir
from waybill.kernel.errors import ConfigError, RefusedError

__all__ = ["SchemaFile", "SchemaResult", "apply_schemas", "check_schemas", "load_schemas"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFile:
    """One schema file that passed the lint."""

    #: `waybill.<record>`, shared by all tenants.
    subject: str
    file: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaResult:
    """What the registry says, or now holds, about one file."""

    subject: str
    file: str
    #: `registered`, `in step`, `new` (would be registered) or `incompatible`.
    state: str
    schema_id: int | None
    messages: tuple[str, ...] = ()


def load_schemas(folder: Path | None = None) -> list[SchemaFile]:
    """Read and lint every schema file of a folder, by default this installation's `avro/`.

    Raises:
        ConfigError: every fault of every file, one line each.
    """
    place = folder or resource_dir("avro")
    files: list[SchemaFile] = []
    faults: list[str] = []
    for path in sorted(place.glob("*.avsc")):
        shown, text = f"{place.name}/{path.name}", path.read_text(encoding="utf-8")
        faults.extend(str(fault) for fault in lint_schema(text, shown))
        files.append(SchemaFile(subject=f"waybill.{path.stem}", file=shown, text=text))
    if faults:
        raise ConfigError("\n".join(faults))
    if not files:
        raise ConfigError(f"{place}: no schema file; expected TaskState.avsc and others")
    return files


def check_schemas(registry: Registry, files: Sequence[SchemaFile]) -> list[SchemaResult]:
    """Compare files with the registry and change nothing but the compatibility level of their subjects.

    The level must be set before the question, or the registry answers it by a weaker rule.
    """
    results: list[SchemaResult] = []
    for file in files:
        registry.require_full_transitive(file.subject)
        found = registry.find(file.subject, file.text)
        if found is not None:
            results.append(SchemaResult(subject=file.subject, file=file.file, state="in step", schema_id=found))
            continue
        verdict = registry.check(file.subject, file.text)
        state = "new" if verdict.is_compatible else "incompatible"
        results.append(
            SchemaResult(subject=file.subject, file=file.file, state=state, schema_id=None, messages=verdict.messages)
        )
    return results


def apply_schemas(registry: Registry, files: Sequence[SchemaFile]) -> list[SchemaResult]:
    """Register what is new. All or nothing: one incompatible file and none is registered. Idempotent.

    Raises:
        RefusedError: rule `schema_compatibility`; names every file and the registry's reasons.
    """
    results = check_schemas(registry, files)
    refused = [result for result in results if result.state == "incompatible"]
    if refused:
        lines = [f"{r.file}: not compatible with every registered version: {'; '.join(r.messages)}" for r in refused]
        raise RefusedError("\n".join(lines), rule="schema_compatibility")
    text_of = {file.subject: file.text for file in files}
    return [
        result
        if result.state == "in step"
        else SchemaResult(
            subject=result.subject,
            file=result.file,
            state="registered",
            schema_id=registry.register(result.subject, text_of[result.subject]),
        )
        for result in results
    ]
