"""What a check is and what it says: findings with evidence, or what it lacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from headrace.plan.lint.subject import Subject

Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")

Kind = Literal["engine", "gateway", "run", "prompts"]
"""What a check looks at."""


@dataclass(frozen=True)
class Evidence:
    """One number or text that was found. where: file and line, option, or how it was computed."""

    name: str
    value: float | str
    where: str
    unit: str = ""


@dataclass(frozen=True)
class Found:
    """One thing that is wrong. remedy: the setting to change. severity: None for the check's."""

    says: str
    evidence: tuple[Evidence, ...]
    remedy: str
    severity: Severity | None = None

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"{self.says!r} has no evidence; a finding is given with it only")


@dataclass(frozen=True)
class Needs:
    """The check could not be made. what: the thing that it lacked."""

    what: str


Outcome: TypeAlias = tuple[Found, ...] | Needs


@dataclass(frozen=True)
class Check:
    """One pitfall."""

    id: str
    title: str
    severity: Severity
    looks_at: tuple[Kind, ...]
    needs: str
    """What it takes beside what it looks at."""
    remedy: str
    sources: tuple[str, ...]
    """Items of the coverage ("cr-468", line 468 of that document) and rows of the catalog."""
    run: Callable[[Subject], Outcome]
    """Pure; () where all is well."""


@dataclass(frozen=True)
class Finding:
    """A `Found` with the check it is of. looked_at: the files and commands."""

    check: Check
    found: Found
    looked_at: tuple[str, ...]

    @property
    def severity(self) -> Severity:
        return self.found.severity or self.check.severity

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.check.id,
            "title": self.check.title,
            "severity": self.severity,
            "looked_at": list(self.looked_at),
            "says": self.found.says,
            "evidence": [
                {"name": one.name, "value": one.value, "unit": one.unit, "where": one.where}
                for one in self.found.evidence
            ],
            "remedy": self.found.remedy,
            "sources": list(self.check.sources),
        }


@dataclass(frozen=True)
class NotChecked:
    """A check that lacked something. looked_at: what it would have been made of, where any."""

    check: Check
    needs: str
    looked_at: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """A report of all chosen checks, each in one of the three."""

    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    clean: tuple[Check, ...]
    """Looked, and nothing was found."""
    looked_at: tuple[str, ...]
    """What each file or command was taken for."""
    notes: tuple[str, ...] = ()
    """What in them was not understood."""

    def at_or_above(self, severity: Severity) -> tuple[Finding, ...]:
        """Findings of that severity and worse."""
        least = SEVERITIES.index(severity)
        return tuple(one for one in self.findings if SEVERITIES.index(one.severity) >= least)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "looked_at": list(self.looked_at),
            "findings": [one.as_dict() for one in self.findings],
            "not_checked": [
                {"id": one.check.id, "needs": one.needs, "looked_at": list(one.looked_at)}
                for one in self.not_checked
            ],
            "clean": [one.id for one in self.clean],
            "notes": list(self.notes),
        }
