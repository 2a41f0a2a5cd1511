"""What `headrace plan fit` prints: the verdict, memory by component, the most, and changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.plan.output import add_id_column, asked_line
from headrace.cli.plan.plots import memory_bar, wanted
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from headrace.plan.memory.fit import Fit
    from headrace.plan.quantity import Quantity

_WORDS = {
    "fits": "[green]fits[/green]",
    "fits with mapped experts": "[yellow]fits with its experts in the file[/yellow]",
    "fits with experts on the CPU": "[yellow]fits with experts on the CPU[/yellow]",
    "fits with changes": "[yellow]fits with a change[/yellow]",
    "does not fit": "[red]does not fit[/red]",
}


def print_fit(found: Fit, plot: bool | None = None) -> None:
    """The answer for people; `as_dict` has all of it. plot: None to draw in a terminal alone."""
    from rich.markup import escape
    from rich.table import Table

    from headrace.cli.bench.console import wide_console
    from headrace.plan.memory.fit_figures import placed_words, saving_id

    console = wide_console()
    place, memory = found.memory.place, found.memory
    devices = f"{place.devices} x " if place.devices > 1 else ""
    name = escape(visible(found.shape.name))
    console.print(
        f"{name} ({found.shape.source}) on {devices}{escape(place.name)}: {_WORDS[found.verdict]}",
        highlight=False,
    )
    if not memory.fits:
        console.print(
            f"{_size(memory.missing_bytes)} too much"
            + (" on each device" if place.devices > 1 else ""),
            highlight=False,
        )
    elif not memory.fits_surely:
        over = memory.needed.band[1] - memory.usable.value
        console.print(f"but at the upper end of the band {_size(over)} too much", highlight=False)
    if (experts := found.expert_cache) is not None:
        console.print(
            f"headrace serve leaves the experts ({_size(experts.expert_bytes)} packed) in the "
            f"mapped file and holds {_size(experts.cache_bytes)} of them packed at a time",
            highlight=False,
        )
    if (placed := found.placed) is not None:
        console.print(placed_words(placed, _size), highlight=False)
    table = Table("memory", title="of each device" if place.devices > 1 else None)
    for heading in ("GB", "GiB", "band, GB"):
        table.add_column(heading, justify="right")
    rows = (*memory.components, memory.needed, memory.usable, memory.free_for_kv)
    add_id_column(table, [one.id for one in rows], console.width)
    table.add_column("formula")
    for one in rows:
        last = one is memory.components[-1] or one is memory.usable
        table.add_row(
            escape(visible(one.name)), f"{one.value / 1e9:.2f}", f"{one.value / 2**30:.2f}",
            _band(one), one.id, one.formula, end_section=last,
        )  # fmt: skip
    console.print(table)
    if wanted(console, plot):
        for line in memory_bar(found):
            console.print(escape(line), highlight=False, soft_wrap=True)
    for one in (found.most_context, found.most_users):
        low, high = one.band
        spread = "" if one.is_exact else f" (from {low:,.0f} to {high:,.0f})"
        ends = ""
        if one is found.most_context and found.context_limit == "model":
            ends = ", the model's own length"
        console.print(
            f"{one.name}: {one.value:,.0f}{spread}{ends}  {escape(f'[{one.id}]')}", highlight=False
        )
    if found.changes:
        changes = Table(
            "change", "enough", title="what would make it fit",
            caption=f"ids: {saving_id(found.changes[0])}, …", caption_justify="left",
        )  # fmt: skip
        changes.add_column("saves, GB", justify="right")
        changes.add_column("option", overflow="fold")
        for change in found.changes:
            changes.add_row(
                escape(change.text), "yes" if change.enough else "no",
                f"{change.saving_bytes / 1e9:.2f}", change.option,
            )  # fmt: skip
        console.print(changes)
    for note in found.notes:
        console.print(f"note: {escape(visible(note))}", highlight=False)
    console.print(asked_line("fit"), highlight=False)


def _band(one: Quantity) -> str:
    low, high = one.band
    return "exact" if one.is_exact else f"{low / 1e9:.2f} to {high / 1e9:.2f}"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.2f} GB ({n_bytes / 2**30:.2f} GiB)"
