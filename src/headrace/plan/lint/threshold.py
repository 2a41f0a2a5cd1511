"""From where on a check speaks up: constants of the catalog, so that people can set their own."""

from __future__ import annotations

from headrace.plan.lint.finding import Evidence
from headrace.plan.lint.subject import Subject
from headrace.plan.machine.hardware_memory import constant


def threshold(subject: Subject, name: str) -> float:
    """The constant lint-`name`, in base units."""
    return constant(subject.catalog, f"lint-{name}")[0]


def threshold_evidence(subject: Subject, name: str, says: str) -> Evidence:
    """The same as a line of a finding's evidence."""
    value, input = constant(subject.catalog, f"lint-{name}")
    return Evidence(says, value, f"catalog: lint-{name}", input.unit)
