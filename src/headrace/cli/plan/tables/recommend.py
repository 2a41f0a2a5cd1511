"""What `headrace plan recommend` prints: ranks, three ends, commands, what was ruled out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.plan.output import asked_line
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.plan.quantity import Quantity
    from headrace.plan.recommendation.option import Option
    from headrace.plan.recommendation.recommendation import Recommendation

_EXAMPLES = 1


def print_recommendation(found: Recommendation) -> None:
    """The answer for people; `as_dict` has all of it."""
    from headrace.cli.bench.console import wide_console

    console = wide_console()
    _question(console, found)
    if not found.left:
        _nearest(console, found)
    else:
        _ranks(console, found)
        _ends(console, found)
    _ruled_out(console, found)
    for note in found.notes:
        _line(console, f"note: {note}")
    if found.left:
        _line(console, "--json has scores, trees, and all commands")
        first = found.ranked[0].option.figures
        _line(console, asked_line("recommend", first[0].id if first else ""))


def _question(console: Console, found: Recommendation) -> None:
    asked = found.question
    limits = ", ".join(one.text for one in asked.slo) or "none"
    where = [word for word, true in (("private", asked.private), ("edge", asked.edge)) if true]
    budget = "" if asked.budget_usd is None else f", ${asked.budget_usd:,.0f} a month"
    _line(
        console,
        f"{asked.task}: {asked.rate:g} requests/s, prompt {asked.prompt_tokens:,}, output "
        f"{asked.output_tokens:,}, SLO {limits}{budget}{''.join(f', {one}' for one in where)}",
    )
    _line(console, f"{found.looked_at:,} combinations considered, {found.left:,} are left")


def _ranks(console: Console, found: Recommendation) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="ranked, the best of each model and place")
    for heading in ("#", "USD a month", "TTFT ms", "TPOT ms", "size B", "score"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("option")
    for one in found.ranked:
        option = one.option
        size = option.quality.parameters
        table.add_row(
            str(one.place), _usd(option), _least(option) + _ms(option.ttft), _ms(option.tpot),
            "?" if size is None else f"{size / 1e9:.3g}", f"{one.score.total:.2f}",
            escape(visible(_whole_name(option))) + (" *" if option.marks else ""),
        )  # fmt: skip
    console.print(table)
    if any(one.option.marks for one in found.ranked):
        _line(console, "* a soft rule advises against it, see --json; ? means not stated")


def _ends(console: Console, found: Recommendation) -> None:
    three = found.alternatives
    told: dict[str, list[str]] = {}
    options: dict[str, Option] = {}
    for name, option in (
        ("cheapest", three.cheapest), ("fastest", three.fastest), ("largest", three.best)
    ):  # fmt: skip
        if option is None:
            _line(console, f"{name}: no option states the figure that it is ranked by")
            continue
        told.setdefault(option.id, []).append(name)
        options[option.id] = option
    first = found.ranked[0].option
    told.setdefault(first.id, []).insert(0, "first")
    options.setdefault(first.id, first)
    for id, names in sorted(told.items(), key=lambda one: "first" not in one[1]):
        _option(console, found, options[id], " and ".join(names))


def _option(console: Console, found: Recommendation, option: Option, title: str) -> None:
    _line(console, "")
    _line(console, f"{title}: {_whole_name(option)}", style="bold")
    cost = f"${_usd(option)} a month" if option.usd_per_month else "price not stated"
    times = [
        f"{name} {least}{_ms(figure)} ms ({_number(figure.band[0])} to {_number(figure.band[1])})"
        for name, figure, least in (
            ("TTFT", option.ttft, _least(option)),
            ("TPOT", option.tpot, ""),
            ("E2E", option.e2e, _least(option)),
        )
        if figure is not None
    ]
    _line(console, "; ".join([f"{cost} ({option.paid})", *times]), indent=2)
    for reason in option.reasons:
        _line(console, reason, indent=2)
    for one in option.advice:
        agrees = "agrees" if one.agrees else f"suggests {', '.join(one.takes)}"
        disputed = f"; disputed: {', '.join(one.disputed_by)}" if one.disputed_by else ""
        _line(console, f"{one.decision} ({one.end}) {agrees}: {one.because}{disputed}", indent=2)
    if option.quality.kept:
        _line(console, f"its bits cost: {option.quality.kept}", indent=2)
    for mark in option.marks:
        _line(console, f"{mark.rule}: {mark.text}", indent=2)
    for command in found.commands[option.id]:
        _line(console, f"{command.program}:", indent=2)
        for line in command.line.splitlines():
            _line(console, line, indent=4)
        if command.note:
            _line(console, f"({command.note})", indent=4)


def _nearest(console: Console, found: Recommendation) -> None:
    _line(console, found.nothing_fits, style="bold")
    if found.nearest:
        _line(console, "the nearest, each of another model:")
    for one in found.nearest:
        _line(console, one.name, indent=2)
        for breach in one.breaches:
            _line(console, f"{breach.rule}: {breach.text}", indent=4)
        if one.options:
            _line(console, f"possible with: {' '.join(one.options)}", indent=4)
        for remedy in one.remedies:
            _line(console, f"what helps: {remedy}", indent=4)


def _ruled_out(console: Console, found: Recommendation) -> None:
    from rich.markup import escape
    from rich.table import Table

    if not found.ruled_out:
        return
    table = Table(title="ruled out, by rule")
    table.add_column("rule", no_wrap=True)
    table.add_column("options", justify="right")
    table.add_column("nearest example")
    for one in found.ruled_out:
        examples = "; ".join(one.examples[:_EXAMPLES])
        table.add_row(one.rule, f"{one.count:,}", escape(visible(examples)))
    console.print(table)


def _whole_name(option: Option) -> str:
    machines = option.machines
    if machines is None or machines.replicas == 1:
        return option.name
    return f"{option.name}, {machines.replicas} replicas"


def _usd(option: Option) -> str:
    return "?" if option.usd_per_month is None else f"{option.usd_per_month.value:,.0f}"


def _least(option: Option) -> str:
    """Mark of times of which only a part is planned: waiting comes on top."""
    return "≥ " if option.machines is not None else ""


def _ms(figure: Quantity | None) -> str:
    return "?" if figure is None else _number(figure.value)


def _number(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def _line(console: Console, text: str, *, style: str = "", indent: int = 0) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(visible(text), style=style), (0, 0, 0, indent)), highlight=False)
