"""What `headrace plan cost` prints: ways side by side, and the volumes at which each pays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headrace.cli.plan.output import add_id_column, asked_line
from headrace.cli.plan.plots import break_even_plot, print_beside, wanted
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.plan.cost.cost_plan import BreakEvenPair, CostPlan


def print_cost(found: CostPlan, *, every_volume: bool, plot: bool | None = None) -> None:
    """The answer for people; `as_dict` has all of it.

    every_volume: not only powers of ten. plot: None to draw in a terminal alone.
    """
    from rich.markup import escape

    from headrace.cli.bench.console import wide_console

    console = wide_console()
    load = found.load
    where = ""
    if found.hardware is not None:
        devices = f"{found.devices} x " if found.devices > 1 else ""
        where = f" on {devices}{escape(visible(found.hardware))}"
    console.print(f"{escape(visible(found.model))}{where}", highlight=False)
    cached = f", {load.cached_tokens:,} of it cached" if load.cached_tokens else ""
    console.print(
        f"prompt {load.prompt_tokens:,} tokens{cached}, output {load.output_tokens:,}"
        + (f", batch {load.batch:,}" if found.served else ""),
        highlight=False,
    )
    if found.served is not None:
        low, high = found.served.band
        band = "" if found.served.is_exact else f" ({low:,.0f} to {high:,.0f})"
        console.print(
            f"{found.served.name}: {found.served.value:,.0f} tokens/s{band} when busy",
            highlight=False,
        )
    _ways(console, found)
    for one in found.crossings:
        _crossing(console, one, every_volume)
    if wanted(console, plot):
        print_beside(console, [break_even_plot(one) for one in found.crossings])
    notes = [note for way in found.ways for note in way.notes]
    for missing in found.missing:
        console.print(f"not known: {escape(visible(missing))}", highlight=False)
    for note in (*notes, *found.notes):
        console.print(f"note: {escape(visible(note))}", highlight=False)
    example = "cost.served" if found.served is not None else found.ways[0].cost.id
    console.print(asked_line("cost", example), highlight=False)


def _ways(console: Console, found: CostPlan) -> None:
    from rich.markup import escape
    from rich.table import Table

    if not found.ways:
        return
    table = Table("way", title="US dollars, prompt and output together")
    for heading in ("1M tokens", "band", "a request"):
        table.add_column(heading, justify="right")
    table.add_column("price: source, date", overflow="fold")
    add_id_column(table, [one.cost.id for one in found.ways], console.width)
    for one in found.ways:
        low, high = one.cost.band
        table.add_row(
            escape(visible(one.cost.name)), usd(one.cost.value),
            "exact" if one.cost.is_exact else f"{usd(low)} to {usd(high)}",
            usd(one.usd_per_request), f"{one.source} {one.as_of}", one.cost.id,
        )  # fmt: skip
    console.print(table)


def _crossing(console: Console, one: BreakEvenPair, every_volume: bool) -> None:
    from rich.table import Table

    hardware, api = visible(one.hardware.cost.name), visible(one.api.cost.name)
    table = Table(title=f"{hardware} against {api}, a month")
    for heading in ("tokens", "replicas", hardware, api, "1M tokens on hardware", "pays"):
        table.add_column(heading, justify="right")
    for point in one.curve.points:
        if not every_volume and not math.log10(point.tokens_per_month).is_integer():
            continue
        table.add_row(
            tokens(point.tokens_per_month), f"{point.replicas:,}",
            usd(point.fleet_usd_per_month), usd(point.api_usd_per_month),
            usd(point.fleet_usd_per_million_tokens),
            "yes" if point.fleet_usd_per_month <= point.api_usd_per_month else "no",
        )  # fmt: skip
    console.print(table)
    first, always = one.curve.first_tokens_per_month, one.curve.always_tokens_per_month
    if first is None:
        said = "never pays"
    elif always is None:
        said = f"pays first at {tokens(first)} tokens a month, where replicas are full"
    elif always == first:
        said = f"pays from {tokens(first)} tokens a month on"
    else:
        said = f"pays first at {tokens(first)} tokens a month, always from {tokens(always)} on"
    console.print(f"{hardware} {said}", highlight=False)


def usd(value: float) -> str:
    """As prices are written: cents, and more digits below a dime."""
    return f"{value:,.2f}" if value >= 0.1 or value == 0 else f"{value:.3g}"


def tokens(value: float) -> str:
    """1.5 M, 300 G."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:,.3g} {unit}"
    return f"{value:,.0f}"
