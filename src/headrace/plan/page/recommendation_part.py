"""`plan recommend` on a page: the ends, the ranks, cost against latency, commands, rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.page.figures import DASH, compact, duration, figure
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.named_points import Group, NamedPoint, named_points
from headrace.page.plots.scale import logarithmic
from headrace.page.sheet import Cell, Sheet
from headrace.plan.formatting import band
from headrace.plan.page.part import Block, PlanPart

if TYPE_CHECKING:
    from headrace.plan.quantity import Quantity
    from headrace.plan.recommendation.option import Option
    from headrace.plan.recommendation.recommendation import Recommendation

_PAID = (
    ("rented", Key("rented", "c1")),
    ("bought", Key("bought", "c3")),
    ("by token", Key("by token", "c2")),
)


def recommendation_part(found: Recommendation) -> PlanPart:
    """The part of a page."""
    asked = found.question
    limits = ", ".join(one.text for one in asked.slo) or "none"
    budget = "" if asked.budget_usd is None else f", at most ${asked.budget_usd:,.0f} a month"
    where = "".join(f", {word}" for word, true in (("private", asked.private), ("edge", asked.edge))
                    if true)  # fmt: skip
    ends = _ends(found)
    return PlanPart(
        title="What to run",
        subject=(
            f"{asked.task}: {asked.rate:g} requests/s, prompt {asked.prompt_tokens:,} tokens, "
            f"output {asked.output_tokens:,}, SLO {limits}{budget}{where}; prices of "
            f"{asked.on.isoformat()}"
        ),
        verdicts=tuple(_verdicts(found, ends)),
        tiles=_tiles(found),
        plots=tuple(one for one in (_scatter(found, ends),) if one is not None),
        sheets=tuple(_sheets(found, ends)),
        assumptions=found.notes,
        quantities=found.figures,
    )


def _ends(found: Recommendation) -> list[tuple[str, Option]]:
    """The first of the ranks and the three ends, with all that an option is."""
    three = found.alternatives
    told: dict[str, list[str]] = {}
    options: dict[str, Option] = {}
    first = found.ranked[0].option if found.ranked else None
    for name, option in (
        ("first", first), ("cheapest", three.cheapest), ("fastest", three.fastest),
        ("largest", three.best),
    ):  # fmt: skip
        if option is not None:
            told.setdefault(option.id, []).append(name)
            options.setdefault(option.id, option)
    return [(" and ".join(names), options[id]) for id, names in told.items()]


def _verdicts(
    found: Recommendation, ends: Sequence[tuple[str, Option]]
) -> list[tuple[str, bool | None]]:
    counted = f"{found.left:,} of {found.looked_at:,} combinations keep every rule."
    if not ends:
        said = found.nothing_fits
        considered = f"{found.looked_at:,} combinations were considered."
        return [(f"{said[:1].upper()}{said[1:]}. {considered}", False)]
    told: list[tuple[str, bool | None]] = [(f"{_name(ends[0][1])}. {counted}", True)]
    told += [(f"{title.capitalize()}: {_name(one)}.", None) for title, one in ends[1:]]
    return told


def _tiles(found: Recommendation) -> tuple[tuple[str, str], ...]:
    if not found.ranked:
        return ()
    one = found.ranked[0].option
    return (
        ("a month", _usd(one)),
        ("TTFT under load", _least(one) + _time(one.ttft)),
        ("TPOT under load", _time(one.tpot)),
        ("E2E under load", _least(one) + _time(one.e2e)),
    )


def _scatter(found: Recommendation, ends: Sequence[tuple[str, Option]]) -> Plot | None:
    """Every option that is left and has both; those that are told have their names."""
    names = {one.option.id: f"{one.place} {one.option.model_name}" for one in found.ranked}
    names |= {one.id: f"{title}: {one.model_name}" for title, one in ends}
    chosen = [one.id for _, one in ends]
    with_both = [
        (one, one.usd_per_month.value, one.e2e_s)
        for one in found.options
        if one.usd_per_month is not None and one.usd_per_month.value > 0 and one.e2e_s is not None
    ]
    # Names take room in this order: those of the ends, of the ranks, of no one.
    with_both.sort(key=lambda each: 0 if each[0].id in chosen else 1 if each[0].id in names else 2)
    groups = [
        Group(
            key,
            [
                NamedPoint(names.get(one.id, ""), usd, seconds * 1e3,
                      f"{_name(one)}: ${usd:,.0f} a month, E2E {duration(seconds * 1e3)}")
                for one, usd, seconds in with_both
                if one.paid == paid
            ],
        )
        for paid, key in _PAID
    ]  # fmt: skip
    without = len(found.options) - len(with_both)
    caption = (
        "Every option that keeps the rules; options further left are cheaper, further down faster."
    )
    if without:
        caption += f" {without:,} are not drawn, as their E2E or their cost is not known or 0."
    return named_points(
        "Cost against latency", groups, logarithmic, logarithmic, x_title="USD a month",
        y_title="E2E under load", x_label=compact, y_label=duration, caption=caption,
    )  # fmt: skip


def _sheets(found: Recommendation, ends: Sequence[tuple[str, Option]]) -> list[Sheet | Block]:
    sheets: list[Sheet | Block] = []
    if ends:
        sheets += [_alternatives(ends), _ranks(found), *_commands(found, ends)]
        sheets += [_why(title, one) for title, one in ends]
    if found.nearest:
        sheets.append(_nearest(found))
    if found.ruled_out:
        sheets.append(_ruled_out(found))
    return sheets


def _alternatives(ends: Sequence[tuple[str, Option]]) -> Sheet:
    rows = tuple(
        (
            Cell(title),
            Cell(_name(one), one.id),
            _money(one),
            _timed(one.ttft, _least(one)),
            _timed(one.tpot),
            _timed(one.e2e, _least(one)),
            Cell(_size(one)),
        )
        for title, one in ends
    )
    return Sheet(
        "The first, and the three ends",
        ("", "option and id", "USD a month", "TTFT", "TPOT", "E2E", "size"),
        rows,
        (
            "The ids of figures are the option's id followed by .month, .ttft, .tpot, .e2e or "
            ".size.",
        ),
        names=2,
    )


def _ranks(found: Recommendation) -> Sheet:
    rows = tuple(
        (
            Cell(f"{one.place}"),
            Cell(_name(one.option), ", ".join(mark.rule for mark in one.option.marks)),
            _money(one.option),
            _timed(one.option.ttft, _least(one.option)),
            _timed(one.option.tpot),
            Cell(_size(one.option)),
            Cell(f"{one.score.total:.2f}"),
        )
        for one in found.ranked
    )
    return Sheet(
        "Ranked, the best of each model and place",
        ("#", "option, and soft rules against it", "USD a month", "TTFT", "TPOT", "size", "score"),
        rows,
        names=2,
    )


def _why(title: str, one: Option) -> Sheet:
    rows = [(Cell("figures"), Cell(reason)) for reason in one.reasons]
    for advice in one.advice:
        says = "agrees" if advice.agrees else f"suggests {', '.join(advice.takes)}"
        disputed = f"disputed: {', '.join(advice.disputed_by)}" if advice.disputed_by else ""
        rows.append(
            (
                Cell(f"{advice.decision}, {advice.end}"),
                Cell(f"{says}: {advice.because}", disputed, None if advice.agrees else False),
            )
        )
    if one.quality.kept:
        rows.append((Cell("its bits cost"), Cell(one.quality.kept)))
    rows += [(Cell(mark.rule), Cell(mark.text, "", False)) for mark in one.marks]
    return Sheet(f"Why: {title}", ("", _name(one)), tuple(rows), names=2)


def _nearest(found: Recommendation) -> Sheet:
    rows = tuple(
        (
            Cell(one.name),
            Cell("; ".join(f"{breach.rule}: {breach.text}" for breach in one.breaches)),
            Cell(" ".join(one.options) or "; ".join(one.remedies)),
        )
        for one in found.nearest
    )
    return Sheet("The nearest", ("combination", "breaks", "possible with"), rows, names=3)


def _ruled_out(found: Recommendation) -> Sheet:
    rows = tuple(
        (Cell(one.rule, one.says), Cell("; ".join(one.examples)), Cell(f"{one.count:,}"))
        for one in found.ruled_out
    )
    return Sheet(
        "Ruled out, by rule", ("rule", "nearest examples", "combinations"), rows,
        ("A combination that breaks several rules counts for each.",), names=2,
    )  # fmt: skip


def _commands(found: Recommendation, ends: Sequence[tuple[str, Option]]) -> list[Block]:
    return [
        Block(f"{command.program}: {title}, {_name(one)}", command.line, command.note)
        for title, one in ends
        for command in found.commands[one.id]
    ]


def _name(one: Option) -> str:
    machines = one.machines
    if machines is None or machines.replicas == 1:
        return one.name
    return f"{one.name}, {machines.replicas:,} replicas"


def _usd(one: Option) -> str:
    return DASH if one.usd_per_month is None else f"${one.usd_per_month.value:,.0f}"


def _money(one: Option) -> Cell:
    month = one.usd_per_month
    return Cell(_usd(one), one.paid if month is None or month.is_exact
                else f"{one.paid}, {band(*month.band, 'USD')}")  # fmt: skip


def _time(one: Quantity | None) -> str:
    return DASH if one is None else duration(one.value * 1e3)


def _timed(one: Quantity | None, least: str = "") -> Cell:
    return Cell(DASH) if one is None else Cell(least + _time(one), band(*one.band, "s"))


def _least(option: Option) -> str:
    """Mark of times of which only a part is planned: waiting comes on top."""
    return "≥ " if option.machines is not None else ""


def _size(one: Option) -> str:
    size = one.quality.parameters
    return DASH if size is None else f"{figure(size / 1e9)} B"
