"""The page of a comparison: the runs' distributions over each other, and the table of ratios."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.definitions import Clock
from headrace.bench.definitions import definition as definition_named
from headrace.bench.report.compare import Comparison, NamedRun
from headrace.bench.report.compare_sheets import comparison_sheets
from headrace.bench.report.plots.cdf import Curve, cdf
from headrace.bench.report.run_plots import limit_ms
from headrace.bench.report.samples import RunSamples
from headrace.bench.report.sheet import about
from headrace.bench.slo import Slo
from headrace.page.markup import tag
from headrace.page.page import page, section, sheet_markup
from headrace.page.plots.frame import key_at

_PLOTS: tuple[tuple[str, str, Clock], ...] = (
    ("TTFT from intended send time", "ttft", "intended"),
    ("TTFT from actual send time", "ttft", "sent"),
    ("Time per output token", "tpot", "sent"),
    ("Gaps between chunks (ITL)", "itl_chunk", "sent"),
    ("End-to-end latency from intended", "e2e", "intended"),
    ("End-to-end latency from actual", "e2e", "sent"),
)


def comparison_page(of: Comparison, runs: Sequence[NamedRun], *, slo: Slo | None = None) -> str:
    """The whole document; `runs` are those that `of` compares."""
    under = definition_named(of.definition)
    samples = [RunSamples(one.run, under) for one in runs]
    plots = []
    for title, canonical, clock in _PLOTS:
        curves = [
            Curve(key_at(at, one.name), got.values_ms(canonical, clock))
            for at, (one, got) in enumerate(zip(runs, samples, strict=True))
        ]
        plots.append(cdf(title, curves, limit_ms=limit_ms(slo, canonical)))
    drawn = [one.markup for one in plots if one is not None]
    parts: list[str] = [
        tag("h1", "headrace bench compare"),
        tag("p", f"{' · '.join(of.names)}; ratios to {of.names[0]}", class_="sub"),
        *[
            tag("div", tag("p", one.text), class_="verdict bad" if one.misleads else "verdict")
            for one in of.caveats
        ],
        section("Ratios", [sheet_markup(one) for one in comparison_sheets(of)]),
        section("Distributions", [tag("div", *drawn, class_="plots")] if drawn else []),
        section(
            "Provenance",
            [sheet_markup(about(one.run.about)._replace(title=one.name)) for one in runs],
        ),
    ]
    return page("headrace bench compare", parts)
