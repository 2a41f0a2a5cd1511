"""All checks over all that was named.

A check that looks at engines is made of each engine, one that looks at runs of each run, and one of
both of each pair; equal findings are told once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from headrace.plan.lint.engine_setup import EngineSetup
from headrace.plan.lint.finding import SEVERITIES, Check, Finding, Needs, NotChecked, Report
from headrace.plan.lint.known import LintOptions, known_of
from headrace.plan.lint.subject import Subject
from headrace.plan.lint.targets import Targets


def lint(targets: Targets, given: LintOptions, checks: Sequence[Check]) -> Report:
    """Raises ConfigError, CatalogError or CheckpointError for an option that names nothing."""
    engines: tuple[EngineSetup | None, ...] = targets.engines or (None,)
    known = {id(engine): known_of(given, engine) for engine in engines}
    findings: list[Finding] = []
    lacking: list[NotChecked] = []
    clean: list[Check] = []
    for check in checks:
        found: list[Finding] = []
        needs: dict[str, tuple[str, ...]] = {}
        looked = False
        for subject in _subjects(targets, known, check):
            places = _places(subject, check)
            outcome = check.run(subject)
            if isinstance(outcome, Needs):
                needs.setdefault(outcome.what, places)
                continue
            looked = looked or bool(places)
            found += [Finding(check, one, places) for one in outcome]
            if not places:
                needs.setdefault(_wanted(check), places)
        unique = {(one.found, one.severity): one for one in found}
        findings += unique.values()
        lacking += [NotChecked(check, what, places) for what, places in needs.items()
                    if places or not looked]  # fmt: skip
        if not found and not needs:
            clean.append(check)
    findings.sort(key=lambda one: -SEVERITIES.index(one.severity))  # stable: else by check
    return Report(tuple(findings), tuple(lacking), tuple(clean), targets.looked_at, targets.notes)


def _subjects(
    targets: Targets, known: dict[int, dict[str, object]], check: Check
) -> Iterator[Subject]:
    """One for each combination of what the check looks at; of the rest the first is there."""

    def of(kind: str, there: Sequence[object]) -> Sequence[object]:
        return (there if kind in check.looks_at else there[:1]) or (None,)

    for engine, gateway, run, prompts in product(
        of("engine", targets.engines),
        of("gateway", targets.gateways),
        of("run", targets.runs),
        of("prompts", targets.prompts),
    ):
        yield Subject(
            engine=engine,  # type: ignore[arg-type]
            gateway=gateway,  # type: ignore[arg-type]
            run=run,  # type: ignore[arg-type]
            runs=targets.runs,
            prompts=prompts,  # type: ignore[arg-type]
            **known[id(engine)],  # type: ignore[arg-type]
        )


def _places(subject: Subject, check: Check) -> tuple[str, ...]:
    there = (
        ("engine", subject.engine), ("gateway", subject.gateway), ("run", subject.run),
        ("prompts", subject.prompts),
    )  # fmt: skip
    return tuple(one.where for kind, one in there if one is not None and kind in check.looks_at)


def _wanted(check: Check) -> str:
    names = {
        "engine": "an engine's config",
        "gateway": "a gateway's config",
        "run": "a run",
        "prompts": "prompts",
    }
    return " or ".join(names[kind] for kind in check.looks_at)
