"""What `headrace plan simulate` prints: latencies, goodput, replicas over time, cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.cli.plan.output import asked_line
from headrace.cli.plan.plots import print_beside, simulation_plots, wanted
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.plan.simulation.result import LaneResult, SimulationResult
    from headrace.plan.simulation.series import Point
    from headrace.plan.simulation.simulate import FewestReplicas
    from headrace.plan.speed.replica import Replica

_ROWS = 12
_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "queue": "queue"}


def print_simulation(
    result: SimulationResult,
    replica: Replica | None,
    found: FewestReplicas | None,
    plot: bool | None = None,
) -> None:
    """The answer for people; `as_dict` has all of it. plot: None to draw in a terminal alone."""
    from rich.markup import escape

    from headrace.cli.bench.console import wide_console

    console = wide_console()
    say = _sayer(console)
    settings, engine = result.settings, result.settings.engine
    if replica is not None:
        setup = replica.model.setup
        devices = setup.parallelism.devices
        say(f"{escape(visible(setup.shape.name))} on {devices} x "
            f"{escape(visible(setup.device.name))} a replica")  # fmt: skip
    say(f"step times: {escape(visible(engine.latency.source))}")
    split = settings.disaggregation
    if split is None:
        scaled = settings.autoscale
        span = f", scaled {scaled.least} to {scaled.most} by {scaled.by}" if scaled else ""
        say(f"{settings.replicas:,} replicas at the start{span}, {settings.routing}, KV cache "
            f"{engine.kv_tokens:,} tokens each")  # fmt: skip
    else:
        say(f"{split.prefill_replicas:,} prefill and {split.decode_replicas:,} decode replicas, "
            f"{split.kv_bytes_per_token / 1e3:,.0f} kB of KV a token over "
            f"{split.link_bytes_per_s / 1e9:g} GB/s")  # fmt: skip
    say(f"{result.arrived:,} requests arrived in {_time(result.seconds)}; {result.completed:,} "
        f"ended, {result.refused:,} refused, {result.retries:,} started again after "
        f"{len(result.failures):,} failures")  # fmt: skip
    if result.overload is not None:
        console.print(result.overload_text, style="bold", highlight=False, markup=False)
    _latencies(console, (result.overall, *result.lanes))
    _rates(result, say)
    _goodput(result, say)
    if result.cost is not None:
        cost = result.cost
        million = cost.million_output_tokens
        each = "" if million is None else f", {million:,.2f} USD a million output tokens"
        say(f"cost: {cost.total:,.2f} USD for {result.replica_hours:,.1f} replica-hours, "
            f"{cost.per_hour:,.2f} USD/h{each}")  # fmt: skip
    _series(console, result.points)
    if wanted(console, plot):
        print_beside(console, simulation_plots(result))
    if found is not None:
        tried = ", ".join(f"{count:,}: {share:.2%}" for count, _, share in found.tried)
        say(f"fewest replicas with {found.attainment:.1%} of the requests good: "
            f"{found.replicas:,} (tried {tried})")  # fmt: skip
    for note in result.notes:
        say(f"note: {escape(visible(note))}")
    say("--json has all points of the series")
    say(asked_line("simulate"))


def _sayer(console: Console) -> Callable[[str], None]:
    def say(text: str) -> None:
        console.print(text, highlight=False)

    return say


def _latencies(console: Console, lanes: tuple[LaneResult, ...]) -> None:
    from rich.table import Table

    table = Table("latency")
    if len(lanes) > 1:
        table.add_column("priority", justify="right")
    for heading in ("requests", "mean", "p50", "p90", "p95", "p99", "most"):
        table.add_column(heading, justify="right")
    for lane in lanes:
        for name, one in lane.spreads.items():
            if one is None:
                continue
            which = ["all" if lane.priority is None else str(lane.priority)]
            table.add_row(
                _NAMES[name], *(which if len(lanes) > 1 else []), f"{one.count:,}",
                *map(_time, (one.mean_s, one.p50_s, one.p90_s, one.p95_s, one.p99_s, one.most_s)),
            )  # fmt: skip
        table.add_section()
    console.print(table)


def _rates(result: SimulationResult, say: Callable[[str], None]) -> None:
    hits = result.prefix_hit_share
    found = "" if hits is None else f"; {hits:.0%} of prompt tokens found in prefix caches"
    say(f"{result.requests_per_s:,.2f} requests/s, {result.output_tokens_per_s:,.0f} output "
        f"tokens/s{found}")  # fmt: skip
    say(f"replicas busy {result.busy_share:.0%} of the time, batch {result.batch:,.1f} on average; "
        f"KV in use {result.kv_share:.0%}, at most {result.kv_share_most:.0%}; waiting "
        f"{result.waiting:,.1f}, at most {result.waiting_most:,}; {result.preemptions:,} "
        "preemptions")  # fmt: skip


def _goodput(result: SimulationResult, say: Callable[[str], None]) -> None:
    one = result.goodput
    if one is None:
        return
    say(
        f"goodput: {one.good:,} of {one.judged:,} requests ({one.fraction:.2%}), "
        f"{one.requests_per_s:,.2f} requests/s, {one.output_tokens_per_s:,.0f} tokens/s"
    )
    for got in one.conditions:
        if got.share is not None:
            say(f"  {got.condition}: {got.share:.2%} of the requests")
        else:
            value = "nothing measured" if got.value_ms is None else f"{got.value_ms:,.1f} ms"
            say(f"  {got.condition}: {value}, {'met' if got.met else 'missed'}")


def _series(console: Console, points: tuple[Point, ...]) -> None:
    from rich.table import Table

    if len(points) < 2:
        return
    table = Table(title="over time")
    for heading in ("at", "ready", "paid for", "waiting", "running", "batch", "KV", "busy"):
        table.add_column(heading, justify="right")
    step = max(1, -(-len(points) // _ROWS))
    for at in range(0, len(points), step):
        part = points[at : at + step]
        last = part[-1]
        table.add_row(
            _time(last.at_s), f"{last.replicas_ready:,}", f"{last.replicas_paid:,}",
            f"{_mean([one.waiting for one in part]):,.0f}",
            f"{_mean([one.running for one in part]):,.0f}",
            f"{_mean([one.batch for one in part]):,.1f}",
            f"{_mean([one.kv_share for one in part]):.0%}",
            f"{_mean([one.busy_share for one in part]):.0%}",
        )  # fmt: skip
    console.print(table)


def _mean(values: list[int] | list[float]) -> float:
    return sum(values) / len(values)


def _time(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.2f} h"
    if seconds >= 1:
        return f"{seconds:,.2f} s"
    return f"{seconds * 1e3:,.1f} ms"
