"""What `headrace plan cost --cascade` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.plan.output import asked_line
from headrace.cli.plan.tables.cost import usd
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from headrace.plan.cost.cascade_plan import CascadePlan


def print_cascade(found: CascadePlan) -> None:
    """The answer for people; `as_dict` has all of it."""
    from rich.markup import escape
    from rich.table import Table

    from headrace.cli.bench.console import wide_console

    console = wide_console()
    small, large = visible(found.small.model), visible(found.large.model)
    console.print(
        f"{escape(small)} first, {found.escalation:.0%} passed on to {escape(large)}",
        highlight=False,
    )
    table = Table("way", title="US dollars a request")
    for heading in ("cascade", "band", "small alone", "large alone", "pays up to", "id"):
        table.add_column(heading, justify="right")
    for one in found.ways:
        low, high = one.cost.band
        table.add_row(
            escape(visible(one.cost.name)), usd(one.cost.value),
            "exact" if one.cost.is_exact else f"{usd(low)} to {usd(high)}",
            usd(one.small_usd), usd(one.large_usd), f"{one.most_escalation:.0%} passed on",
            one.cost.id,
        )  # fmt: skip
    console.print(table)
    for time in (found.latency, found.worst_latency):
        if time is not None:
            low, high = time.band
            console.print(
                f"{time.name}: {time.value:.3g} s ({low:.3g} to {high:.3g}), {time.id}",
                highlight=False,
            )
    for note in found.notes:
        console.print(f"note: {escape(visible(note))}", highlight=False)
    console.print(asked_line("cost", found.figures[0].id), highlight=False)
