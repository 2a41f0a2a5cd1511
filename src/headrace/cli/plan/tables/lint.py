"""What `headrace plan lint` prints: findings with their evidence, and what was not checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.cli.visible import visible

if TYPE_CHECKING:
    from headrace.plan.lint.finding import Check, Evidence, Finding, Report

_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}
_SCALES = ((1e9, "GB"), (1e6, "MB"))


def print_report(report: Report) -> None:
    """For people; `as_dict` has all of it."""
    from rich.markup import escape
    from rich.table import Table

    from headrace.cli.bench.console import wide_console

    console = wide_console()
    for line in report.looked_at:
        console.print(escape(visible(line)), highlight=False)
    for finding in report.findings:
        _print_finding(console.print, finding)
    if report.not_checked:
        console.print()
        by_need: dict[str, list[str]] = {}
        for one in report.not_checked:
            by_need.setdefault(one.needs, []).append(one.check.id)
        table = Table("not checked: needs", "checks", title=None)
        table.columns[0].overflow = table.columns[1].overflow = "fold"
        for needs, ids in by_need.items():
            table.add_row(escape(visible(needs)), ", ".join(dict.fromkeys(ids)))
        console.print(table)
    for note in report.notes:
        console.print(f"note: {escape(visible(note))}", highlight=False)
    counts = {
        severity: sum(one.severity == severity for one in report.findings)
        for severity in ("error", "warning", "info")
    }
    told = ", ".join(f"{count} {severity}" for severity, count in counts.items())
    lacking = len({one.check.id for one in report.not_checked})
    console.print(
        f"{told}; {len(report.clean)} checks found nothing, {lacking} lacked an input",
        highlight=False,
    )


def print_checks(checks: Sequence[Check]) -> None:
    """The register."""
    from rich.table import Table

    from headrace.cli.bench.console import wide_console

    table = Table("id", "severity", "finds", "looks at")
    for one in checks:
        table.add_row(one.id, one.severity, one.title, ", ".join(one.looks_at))
    wide_console().print(table)


def _print_finding(write: object, finding: Finding) -> None:
    from rich.markup import escape

    assert callable(write)
    style = _STYLES[finding.severity]
    write(
        f"\n[{style}]{finding.severity}[/{style}] [bold]{finding.check.id}[/bold] "
        f"{escape(visible(finding.found.says))}",
        highlight=False,
    )
    for one in finding.found.evidence:
        write(
            escape(visible(f"    {one.name}: {_value(one)} ({one.where})").replace("\n", "\\n")),
            highlight=False,
        )
    write(escape(visible(f"  remedy: {finding.found.remedy}")), highlight=False)
    write(f"  source: {', '.join(finding.check.sources)}", highlight=False)


def _value(one: Evidence) -> str:
    if isinstance(one.value, str):
        return f"{one.value} {one.unit}".strip()
    if one.unit == "byte":
        for scale, unit in _SCALES:
            if abs(one.value) >= scale:
                return f"{one.value / scale:,.2f} {unit}"
    if one.unit.startswith("share"):
        return f"{one.value:.1%}{one.unit.removeprefix('share')}"
    number = f"{one.value:,}" if isinstance(one.value, int) else f"{one.value:,.6g}"
    return f"{number} {one.unit}".strip()
