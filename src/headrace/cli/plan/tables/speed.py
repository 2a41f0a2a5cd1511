"""What `headrace plan speed` prints: the figures, bottleneck and knee, a sweep, speculation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.plan.output import add_id_column, asked_line
from headrace.cli.plan.plots import print_beside, speed_plots, wanted
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.plan.quantity import Quantity
    from headrace.plan.speed.speed_plan import SpeedPlan

_BOUND = {
    "bandwidth": "memory bandwidth",
    "compute": "compute",
    "link": "links between devices",
    "overhead": "launches of kernels",
}


def print_speed(found: SpeedPlan, plot: bool | None = None) -> None:
    """The answer for people; `as_dict` has all of it. plot: None to draw in a terminal alone."""
    from rich.markup import escape

    from headrace.cli.bench.console import wide_console

    console = wide_console()
    setup, speed, load = found.replica.model.setup, found.speed, found.speed.load
    devices = f"{speed.devices} x " if speed.devices > 1 else ""
    console.print(
        f"{escape(visible(setup.shape.name))} ({setup.shape.source}) on {devices}"
        f"{escape(visible(setup.device.name))}, {setup.compute_type} products, "
        f"{setup.efficiencies.basis}",
        highlight=False,
    )
    cached = f", {load.cached_tokens:,} of it cached" if load.cached_tokens else ""
    console.print(
        f"prompt {load.prompt_tokens:,} tokens{cached}, output {load.output_tokens:,}, "
        f"batch {load.batch:,}",
        highlight=False,
    )
    _figures(console, found.figures)
    knee = found.knee_batch
    said = "no batch computes longer than it reads" if knee is None else f"knee at batch {knee:,}"
    if knee is not None and not found.knee_fits:
        said += f", beyond what fits ({found.most_at_load:,})"
    console.print(
        f"prefill is bound by {_BOUND[speed.prefill_bottleneck]}, decode by "
        f"{_BOUND[speed.decode_bottleneck]}; {said}",
        highlight=False,
    )
    if found.replica.replicas > 1:
        console.print(
            f"{found.replica.replicas} such replicas fit on this hardware", highlight=False
        )
    _sweep(console, found)
    _speculation(console, found)
    _apart(console, found)
    if wanted(console, plot):
        print_beside(console, speed_plots(found))
    for note in (*found.notes, *speed.assumptions):
        console.print(f"note: {escape(visible(note))}", highlight=False)
    console.print(asked_line("speed"), highlight=False)


def _figures(console: Console, figures: tuple[Quantity, ...]) -> None:
    from rich.table import Table

    table = Table("figure")
    table.add_column("value", justify="right")
    table.add_column("band", justify="right")
    add_id_column(table, [one.id for one in figures], console.width)
    table.add_column("formula")
    for one in figures:
        low, high = one.band
        band = "exact" if one.is_exact else f"{_shown(low, one.unit)} to {_shown(high, one.unit)}"
        table.add_row(visible(one.name), _shown(one.value, one.unit), band, one.id, one.formula)
    console.print(table)


def _sweep(console: Console, found: SpeedPlan) -> None:
    from rich.table import Table

    from headrace.plan.speed.sweep_figures import point_id

    if not found.points:
        return
    example = point_id(found.points[-1])
    table = Table(
        title="decoding by batch",
        caption=f"ids: {example}.tpot, .user, .all",
        caption_justify="left",
    )
    for heading in ("context", "batch", "TPOT", "tokens/s a user", "tokens/s in all"):
        table.add_column(heading, justify="right")
    table.add_column("bound by")
    table.add_column("fits")
    for at, one in enumerate(found.points):
        following = found.points[at + 1 : at + 2]
        table.add_row(
            f"{one.context_tokens:,}", f"{one.batch:,}", _shown(one.tpot_s, "s"),
            f"{one.user_tokens_per_s:,.1f}", f"{one.system_tokens_per_s:,.0f}", one.bottleneck,
            "yes" if found.fits(one) else "no",
            end_section=bool(following) and following[0].context_tokens != one.context_tokens,
        )  # fmt: skip
    console.print(table)


def _speculation(console: Console, found: SpeedPlan) -> None:
    from rich.markup import escape

    one = found.speculation
    if one is None:
        return
    stops = (
        f"pays at every batch up to {one.largest_batch:,}"
        if one.stops_at_batch is None
        else f"stops paying at batch {one.stops_at_batch:,}"
        if one.stops_at_batch > 1
        else "pays at no batch size"
    )
    at = one.at_batch
    low, high = next(o for o in found.quantities if o.id == "speed.speculation").band
    band = "" if f"{low:.2f}" == f"{high:.2f}" else f" ({low:.2f} to {high:.2f})"
    console.print(
        f"speculation ({escape(visible(one.draft.name))}, {one.draft.tokens} drafted, acceptance "
        f"{one.draft.acceptance:.3g}): {at.speedup:.2f} x{band} at batch {at.batch:,}; {stops}",
        highlight=False,
    )
    console.print(
        f"  {at.tokens_per_step:.2f} tokens a step, which costs {at.cost_ratio:.2f} of one "
        f"without: {at.verify_ratio:.2f} the step itself ({one.step_cost}), {at.draft_tokens} x "
        f"{at.draft_ratio:.3f} making drafts ({one.draft_cost})",
        highlight=False,
    )
    if one.most_unseen:
        console.print(
            f"  places of drafts may take up to {one.most_unseen:.2f} of a step beyond that on a "
            "CPU: `headrace plan calibrate --measure MODEL` measures it",
            highlight=False,
        )


def _shown(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:,.2f} s" if value >= 1 else f"{value * 1e3:,.2f} ms"
    if unit == "byte":
        return f"{value / 1e9:,.2f} GB"
    return f"{value:,.1f} {unit}"


def _apart(console: Console, found: SpeedPlan) -> None:
    one = found.apart
    if one is None:
        return
    pools = one.pools
    console.print(
        f"apart, {pools.prefill} replicas that prefill and {pools.decode} that decode: "
        f"prefill and transfer {one.ttft.value * 1e3:,.1f} ms "
        f"({one.transfer.value * 1e3:,.2f} of it the KV cache's transfer), "
        f"TPOT {one.tpot.value * 1e3:,.2f} ms",
        highlight=False,
    )
    console.print(
        f"{one.requests.value:,.2f} requests/s, bound by {one.bound_by}; as many replicas "
        f"together serve {one.together.value:,.2f}; pools of {one.best[0]}:{one.best[1]} "
        f"serve the most per replica (ids: {', '.join(figure.id for figure in one.figures)})",
        highlight=False,
    )
    if one.note:
        console.print(f"note: {one.note}", highlight=False)
