"""`plan cost --cascade` on a page: what a request costs by the share that is passed on."""

from __future__ import annotations

from headrace.page.figures import figure, share
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.lines import Axis, Line, Point, lines_plot
from headrace.page.sheet import Cell, Sheet
from headrace.plan.cost.cascade_plan import CascadePlan, CascadeWay
from headrace.plan.formatting import band, shown
from headrace.plan.page.part import PlanPart, figure_row

_STEPS = 20
_THOUSAND = 1000
"""Requests on the axis: cents of one are too small to be read."""


def cascade_part(found: CascadePlan) -> PlanPart:
    """The part of a page."""
    small, large, load = found.small.model, found.large.model, found.large.load
    where = "" if found.large.hardware is None else f", own and rented hardware: {_places(found)}"
    cached = f", {load.cached_tokens:,} of it cached" if load.cached_tokens else ""
    figures = found.figures
    return PlanPart(
        title="A small model first",
        subject=(
            f"{small} first, {share(found.escalation)} passed on to {large}{where}; prompt "
            f"{load.prompt_tokens:,} tokens{cached}, output {load.output_tokens:,}"
        ),
        verdicts=tuple(_verdict(one, found) for one in found.ways),
        tiles=(
            *((f"a request, {one.cost.name}", f"${figure(one.cost.value)}") for one in found.ways),
            *((one.name, shown(one.value, one.unit)) for one in figures if one.unit == "s"),
        ),
        plots=tuple(plot for one in found.ways if (plot := _plot(one, found)) is not None),
        sheets=(
            _ways(found),
            *(
                [
                    Sheet(
                        "Latency", ("figure and id", "value", "band"), tuple(map(figure_row, times))
                    )
                ]
                if (times := [one for one in figures if one.unit == "s"])
                else []
            ),
        ),
        assumptions=(
            "Each model is priced as if it served alone, with the utilisation that is given.",
            "This plan does not know which requests are passed on; the share is the one you give.",
            *dict.fromkeys((*found.notes, *found.small.notes, *found.large.notes)),
        ),
        quantities=found.quantities,
    )


def _places(found: CascadePlan) -> str:
    many = found.large.devices
    return f"{many} x {found.large.hardware}" if many > 1 else str(found.large.hardware)


def _verdict(one: CascadeWay, found: CascadePlan) -> tuple[str, bool | None]:
    spared = one.large_usd - one.cost.value
    if not one.most_escalation:
        return f"{one.cost.name}: a cascade never pays; the small model costs as much.", False
    if spared >= 0:
        part = spared / one.large_usd if one.large_usd else 0.0
        return (
            f"{one.cost.name}: a request costs {share(part)} less than {found.large.model} alone; "
            f"it pays while at most {share(one.most_escalation)} are passed on.",
            True,
        )
    return (
        f"{one.cost.name}: a request costs ${figure(-spared)} more than {found.large.model} alone; "
        f"it would pay with at most {share(one.most_escalation)} passed on.",
        False,
    )


def _plot(one: CascadeWay, found: CascadePlan) -> Plot | None:
    points = [
        Point(part, usd * _THOUSAND, f"{share(part)} passed on: ${figure(usd)}")
        for step in range(_STEPS + 1)
        for part in [step / _STEPS]
        for usd in [one.small_usd + part * one.large_usd]
    ]
    alone = [
        Point(
            end, one.large_usd * _THOUSAND, f"{found.large.model} alone: ${figure(one.large_usd)}"
        )
        for end in (0.0, 1.0)
    ]
    pays = [(one.most_escalation, f"pays up to {share(one.most_escalation)}")]
    return lines_plot(
        f"A request by the share passed on, {one.cost.name}",
        [
            Line(Key("cascade", "c1"), points),
            Line(Key(f"{found.large.model} alone", "c2", "6 3"), alone, dots=False),
        ],
        Axis("share passed on", share),
        Axis("USD for 1,000 requests", figure),
        upright=[(found.escalation, f"given: {share(found.escalation)}"),
                 *(pays if 0 < one.most_escalation < 1 else [])],
        caption="Values are the middle of the band; the table has both ends.",
    )  # fmt: skip


def _ways(found: CascadePlan) -> Sheet:
    rows = tuple(
        (
            Cell(one.cost.name, one.cost.id),
            Cell(f"${figure(one.cost.value)}"),
            Cell(band(*one.cost.band, "USD")),
            Cell(f"${figure(one.small_usd)}"),
            Cell(f"${figure(one.large_usd)}"),
            Cell(share(one.most_escalation)),
        )
        for one in found.ways
    )
    return Sheet(
        "US dollars a request",
        ("way and id", "cascade", "band", "small alone", "large alone", "pays up to, passed on"),
        rows,
    )
