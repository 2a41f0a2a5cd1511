"""Plots of plans for a terminal: memory, the roofline, latency, break-even, a simulated service."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from headrace.plan.cost.cost_plan import BreakEvenPair
    from headrace.plan.memory.fit import Fit
    from headrace.plan.simulation.result import SimulationResult
    from headrace.plan.simulation.series import Point
    from headrace.plan.speed.speed_plan import SpeedPlan

_WIDTH = 58
_BAR = 60
_EDGE = 10  # what a plot has beside its canvas
_PARTS = "█▓▒░"


def wanted(console: Console, plot: bool | None) -> bool:
    """Whether to draw: as said, else in a terminal alone."""
    return console.is_terminal if plot is None else plot


def print_beside(console: Console, plots: list[list[str]]) -> None:
    """Two beside each other where there is room."""
    from rich.text import Text

    step = 2 if console.width >= 2 * _WIDTH + 2 else 1
    for at in range(0, len(plots), step):
        for row in zip_longest(*plots[at : at + step], fillvalue=""):
            line = "  ".join(f"{cell:<{_WIDTH}}" for cell in row).rstrip()
            console.print(Text(line), soft_wrap=True)
        console.print()


def memory_bar(found: Fit) -> list[str]:
    """A bar with the limit, and what its pieces are."""
    from headrace.page.text_plot import text_bar

    memory = found.memory
    parts = [(mark, one.value) for mark, one in zip(_PARTS, memory.components, strict=True)]
    bar = text_bar(parts, memory.usable.value, _BAR)
    names = [f"{mark} {one.name}" for mark, one in zip(_PARTS, memory.components, strict=True)]
    return [bar, " · ".join([*names, "| usable"])]


def speed_plots(found: SpeedPlan) -> list[list[str]]:
    """The roofline with prefill and decode, then throughput against latency by context."""
    from headrace.page.text_plot import TextAxis, TextCurve, text_plot
    from headrace.plan.speed.speed_roof import speed_roof

    roof = speed_roof(found)
    spots = [(one.intensity, one.operations_per_s) for one in roof.decode]
    prefill = (roof.prefill.intensity, roof.prefill.operations_per_s)
    least = min(spot[0] for spot in (*spots, prefill)) / 2
    most = max(prefill[0], *(spot[0] for spot in spots), 2 * roof.reached[1] / roof.reached[0])
    bandwidth, peak = roof.reached
    corners = [(least, least * bandwidth), (peak / bandwidth, peak), (most, peak)]
    plots = [
        text_plot(
            "roofline, with the efficiencies",
            [
                TextCurve("roof", "·", corners),
                TextCurve("decode by batch", "o", spots, joined=False),
                TextCurve("prefill", "P", [prefill], joined=False),
            ],
            TextAxis("operations/byte", logarithmic=True),
            TextAxis("operations/s", logarithmic=True),
            width=_WIDTH,
        )
    ]
    contexts = list(dict.fromkeys(one.context_tokens for one in found.points))[:6]
    curves = [
        TextCurve(
            f"context {context:,}",
            "o*+x#@"[place],
            [
                (one.tpot_s * 1e3, one.system_tokens_per_s)
                for one in found.points
                if one.context_tokens == context
            ],
        )
        for place, context in enumerate(contexts)
    ]
    frontier = text_plot(
        "throughput against latency, a point for each batch",
        curves,
        TextAxis("TPOT, ms", logarithmic=True),
        TextAxis("tokens/s in all", logarithmic=True),
        width=_WIDTH,
    )
    return [*plots, *([frontier] if frontier else [])]


def break_even_plot(one: BreakEvenPair) -> list[str]:
    """What a month costs either way, at each volume."""
    from headrace.page.text_plot import TextAxis, TextCurve, text_plot

    points = one.curve.points
    return text_plot(
        f"{one.hardware.cost.name} against {one.api.cost.name}, a month",
        [
            TextCurve(one.api.cost.name, "a",
                      [(at.tokens_per_month, at.api_usd_per_month) for at in points]),
            TextCurve(one.hardware.cost.name, "o",
                      [(at.tokens_per_month, at.fleet_usd_per_month) for at in points]),
        ],
        TextAxis("tokens a month", logarithmic=True),
        TextAxis("USD a month", logarithmic=True),
        width=_WIDTH,
    )  # fmt: skip


def simulation_plots(found: SimulationResult) -> list[list[str]]:
    """TTFT by share of requests; then requests, and KV cache and busy replicas, over time.

    A series of one point is not drawn, nor are latencies that nothing was measured of.
    """
    from headrace.page.text_plot import TextAxis, TextCurve, text_plot
    from headrace.plan.page.time_plots import time_slices, time_unit

    slices = time_slices(found.points, _WIDTH - _EDGE)
    unit, unit_s = time_unit(found.seconds)

    def over_time(title: str, of: str, curves: dict[str, Callable[[Point], float]]) -> list[str]:
        return text_plot(
            title,
            [
                TextCurve(name, mark, [
                    (part[-1].at_s / unit_s, sum(map(look, part)) / len(part)) for part in slices
                ])
                for mark, (name, look) in zip("o+", curves.items(), strict=True)
            ],
            TextAxis(f"time, {unit}"),
            TextAxis(of),
            width=_WIDTH,
        )  # fmt: skip

    plots = [_latency_shares(found)]
    if len(found.points) > 1:
        plots += [
            over_time("requests waiting and running", "requests, mean",
                      {"running": lambda at: at.running, "waiting": lambda at: at.waiting}),
            over_time("KV cache in use, and replicas busy", "%",
                      {"busy": lambda at: at.busy_share * 100, "KV": lambda at: at.kv_share * 100}),
        ]  # fmt: skip
    return [one for one in plots if one]


def _latency_shares(found: SimulationResult) -> list[str]:
    """The share of requests that have their first token within a time; of times above 0."""
    from headrace.page.text_plot import TextAxis, TextCurve, text_plot
    from headrace.plan.simulation.result import QUANTILES

    lanes = found.lanes or (found.overall,)
    curves = []
    for mark, lane in zip("o+*x#@", lanes, strict=False):
        spread = lane.spreads["ttft"]
        if spread is None:
            continue
        spots = zip(spread.quantiles_s, QUANTILES, strict=True)
        name = "TTFT" if lane.priority is None else f"priority {lane.priority}"
        curves.append(
            TextCurve(name, mark, [(at * 1e3, part * 100) for at, part in spots if at > 0])
        )
    return text_plot(
        "requests by TTFT, in the queue too",
        curves,
        TextAxis("TTFT at most, ms", logarithmic=True),
        TextAxis("% of the requests"),
        width=_WIDTH,
    )
