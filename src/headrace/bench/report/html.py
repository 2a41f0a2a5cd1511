"""The page of one run, or of a sweep: every figure and the plots that explain it.

Plots show what the definitions count, with the SLO's limits where they concern them. What a plot
leaves out is said below it; the tables leave out nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.definitions import Definition
from headrace.bench.definitions import definition as definition_named
from headrace.bench.load_point import LoadPoint
from headrace.bench.record import RunRecord
from headrace.bench.report import sheet
from headrace.bench.report.load_sheets import loads, search_steps
from headrace.bench.report.run_plots import (
    latency_plots,
    load_plots,
    server_plots,
    time_plots,
)
from headrace.bench.report.samples import RunSamples
from headrace.bench.search_result import SearchResult
from headrace.bench.server_history import server_history
from headrace.bench.slo import Slo
from headrace.bench.summary import Spread, Summary
from headrace.page.figures import DASH, count, duration, figure, share
from headrace.page.markup import Markup, tag
from headrace.page.page import page, section, sheet_markup
from headrace.page.plots.frame import Plot


def report_page(
    run: RunRecord,
    summary: Summary,
    *,
    slo: Slo | None = None,
    sweep: Sequence[LoadPoint] = (),
    search: SearchResult | None = None,
    attainment: float | None = None,
    notes: Sequence[str] = (),
    title: str = "headrace bench",
) -> str:
    """The whole document.

    sweep: points of several runs, drawn as curves where there are two. search: what one found.
    attainment: share of requests that are to be good. notes: what a reader has to know first.
    Plots are under the summary's definition. Raises ConfigError where that is not known.
    """
    under: Definition = definition_named(summary.definition)
    samples = RunSamples(run, under)
    server = server_history(run.server_metrics)
    parts: list[str] = [
        tag("h1", title),
        tag("p", _subtitle(run), class_="sub"),
        *[tag("div", tag("p", note), class_="verdict bad") for note in notes],
        _tiles(summary),
        _found(search),
        _verdict(summary),
        _backlog(summary),
        _clocks(summary, under),
        section("Latency", _plots(latency_plots(samples, slo))),
        section("Throughput and latency over load", _load(sweep, search, slo, attainment)),
        section("Over time", _plots(time_plots(samples, slo))),
        section("The server", _plots(server_plots(server, samples))),
        section("All figures", _all_figures(run, summary)),
        section(
            "What was measured, and how",
            [sheet_markup(sheet.definitions(summary)), sheet_markup(sheet.about(run.about))],
        ),
    ]
    if server.unread:
        parts.append(
            tag(
                "p",
                f"{server.unread} readings of the server's /metrics are not in Prometheus's "
                "format and were skipped.",
                class_="note",
            )
        )
    return page(title, parts, clocks=samples.has_two_clocks())


def _load(
    sweep: Sequence[LoadPoint],
    search: SearchResult | None,
    slo: Slo | None,
    attainment: float | None,
) -> list[Markup]:
    wanted = attainment if slo is not None and slo.of_each else None
    parts = _plots(load_plots(sweep, slo, wanted))
    if len(sweep) > 1:
        parts.append(sheet_markup(loads(sweep)))
    if search is not None:
        parts.append(sheet_markup(search_steps(search)))
    return parts


def _found(search: SearchResult | None) -> Markup:
    """The sentence that a search was for."""
    if search is None:
        return Markup("")
    kind = "verdict" if search.highest_met is None or not search.decided else "verdict good"
    told = f"Search for the highest rate that meets the SLO: {search.told}."
    return tag("div", tag("p", told), class_=kind)


def _backlog(summary: Summary) -> Markup:
    """Where the server did not keep up: then latencies grow with the length of the run."""
    if summary.saturation is None or not summary.saturation.saturated:
        return Markup("")
    return tag("div", tag("p", summary.saturation.told), class_="verdict bad")


def _all_figures(run: RunRecord, summary: Summary) -> list[Markup]:
    """The wide table, the narrow ones beside each other, then what failed requests said."""
    first, *others = [sheet_markup(one) for one in sheet.sheets(summary)]
    parts = [first, tag("div", *others, class_="sheets")]
    said = sheet.errors(run.requests)
    if said.rows:
        parts.append(sheet_markup(said))
    return parts


def _plots(plots: Sequence[Plot]) -> list[Markup]:
    return [tag("div", *[one.markup for one in plots], class_="plots")] if plots else []


_SUBTITLE = ("model", "endpoint", "load", "started")


def _subtitle(run: RunRecord) -> str:
    known = [str(run.about[key]) for key in _SUBTITLE if run.about.get(key) is not None]
    return " · ".join(known) or "A load run"


def _tiles(summary: Summary) -> Markup:
    good = summary.goodput
    failed = summary.requests.failed
    tiles = [
        ("completed requests/s", figure(summary.rps)),
        ("output tokens/s", figure(summary.tps_system)),
        ("TTFT p50, from intended", _p50(summary, "ttft", summary.from_intended)),
        ("TPOT p50", _p50(summary, "tpot", summary.from_sent)),
        (f"completed of {count(summary.requests.measured)}", count(summary.requests.completed)),
        ("failed", f"{count(failed)}"),
    ]
    if good is not None and good.fraction is not None:
        tiles.append(("good under the SLO", share(good.fraction)))
    if summary.cost.per_million_output is not None:
        price = f"${figure(summary.cost.per_million_output)}"
        tiles.append(("per million output tokens", price))
    return tag(
        "div",
        *[tag("div", tag("b", value), tag("span", name), class_="tile") for name, value in tiles],
        class_="tiles",
    )


def _p50(summary: Summary, canonical: str, spreads: dict[str, Spread]) -> str:
    names = [row.name for row in summary.table if row.canonical == canonical]
    spread = spreads.get(names[0]) if names else None
    return DASH if spread is None else duration(spread.distribution.p50)


def _verdict(summary: Summary) -> Markup:
    kind = {True: "verdict bad", False: "verdict good", None: "verdict"}
    return tag(
        "div",
        *[tag("p", sentence) for sentence in summary.client.sentences],
        class_=kind[summary.client.client_bound],
    )


_NOTABLE_WAIT = 1.2


def _clocks(summary: Summary, under: Definition) -> Markup:
    """What the two clocks tell apart, where they do."""
    metric = under.metric("ttft")
    if metric is None:
        return Markup("")
    wanted, sent = summary.from_intended.get(metric.name), summary.from_sent.get(metric.name)
    if wanted is None or sent is None:
        return Markup("")
    late, seen = wanted.distribution.p99, sent.distribution.p99
    if seen <= 0 or late < _NOTABLE_WAIT * seen:
        return Markup("")
    return tag(
        "div",
        tag(
            "p",
            "Requests waited before they could be sent. Counted from the time at which the "
            f"schedule wanted them, TTFT p99 is {duration(late)}; counted from the time at "
            f"which they were sent, it is {duration(seen)}. Only the first includes the wait "
            "of a user; a closed loop shows only the second.",
        ),
        class_="verdict",
    )
