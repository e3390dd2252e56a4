"""The scorecard: every check with its result, the level reached, and the same as JUnit."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from waybill.conformance.core.checks import Check, checks_for, judge
from waybill.conformance.core.evidence import Evidence
from waybill.conformance.core.judging import Finding, Result
from waybill.contracts.fabric import Level, Profile

__all__ = ["Line", "Scorecard", "render_junit", "score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One check and what it came to."""

    check: Check
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    """What a run found."""

    level: Level
    profile: Profile
    lines: Sequence[Line]

    def count(self, result: Result) -> int:
        """Return how many checks came to this."""
        return sum(line.finding.result is result for line in self.lines)

    @property
    def ok(self) -> bool:
        """Whether nothing failed; what was not tested is counted apart."""
        return self.count(Result.FAILED) == 0

    @property
    def reached(self) -> Level | None:
        """The highest level of which, and below which, every check was seen to pass."""
        found = None
        for level in Level:
            mine = [line.finding.result for line in self.lines if line.check.level is level]
            if not mine or any(result is not Result.PASSED for result in mine):
                break
            found = level
        return found

    def rows(self) -> list[dict[str, str]]:
        """Return the table."""
        return [
            {
                "level": line.check.level.value,
                "check": line.check.name,
                "result": line.finding.result.value,
                "claim": line.check.claim,
                "why": line.finding.why,
            }
            for line in self.lines
        ]


def score(evidence: Evidence, level: Level, profile: Profile) -> Scorecard:
    """Judge the evidence against what is asked of this level and profile."""
    lines = [Line(check=check, finding=judge(check, evidence)) for check in checks_for(level, profile)]
    return Scorecard(level=level, profile=profile, lines=lines)


def render_junit(card: Scorecard) -> bytes:
    """Return the scorecard as a JUnit document: a suite per level, `not tested` as skipped."""
    suites = ET.Element("testsuites", name="waybill conformance")
    for level in Level:
        lines = [line for line in card.lines if line.check.level is level]
        if not lines:
            continue
        results = [line.finding.result for line in lines]
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=level.value,
            tests=str(len(lines)),
            failures=str(results.count(Result.FAILED)),
            skipped=str(results.count(Result.NOT_TESTED)),
            errors="0",
        )
        for line in lines:
            name = f"{line.check.name}: {line.check.claim}"
            case = ET.SubElement(suite, "testcase", classname=f"waybill.conformance.{level}", name=name)
            if line.finding.result is Result.FAILED:
                ET.SubElement(case, "failure", message=line.finding.why)
            elif line.finding.result is Result.NOT_TESTED:
                ET.SubElement(case, "skipped", message=line.finding.why)
    document: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document
