"""`plan fit` on a page: what fills the memory, how it grows with the context, what would help."""

from __future__ import annotations

from headrace.page.figures import compact
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.lines import Axis, Line, Point, lines_plot
from headrace.page.plots.stacked_bar import Part, stacked_bar
from headrace.page.sheet import Cell, Sheet
from headrace.plan.formatting import band, shown
from headrace.plan.memory.fit import Fit
from headrace.plan.memory.fit_figures import placed_words, saving_id
from headrace.plan.page.part import PlanPart, figure_row

_COLOURS = ("c1", "c2", "c3", "c4")
_WITH_CHANGES = {
    "fits": "",
    "fits with mapped experts": "It fits with its experts in the file.",
    "fits with experts on the CPU": "It fits with experts on the CPU.",
    "fits with changes": "It fits with a change.",
    "does not fit": "No single change makes it fit.",
}


def fit_part(found: Fit) -> PlanPart:
    """The part of a page."""
    place, memory, load = found.memory.place, found.memory, found.load
    devices = f"{place.devices} x " if place.devices > 1 else ""
    subject = f"{found.shape.name} ({found.shape.source}) on {devices}{place.name}"
    each = " on each device" if place.devices > 1 else ""
    said = f"{load.users:,} x {load.context_tokens:,} tokens"
    said += (
        " fit."
        if memory.fits
        else f" do not fit: {shown(memory.missing_bytes, 'byte')} too much{each}. "
        f"{_WITH_CHANGES[found.verdict]}"
    )
    verdicts: list[tuple[str, bool | None]] = [(said, memory.fits)]
    if memory.fits and not memory.fits_surely:
        over = memory.needed.band[1] - memory.usable.value
        verdicts.append(
            (f"At the upper end of the band it is {shown(over, 'byte')} too much{each}.", False)
        )
    if (experts := found.expert_cache) is not None:
        verdicts.append(
            (
                f"headrace serve leaves the experts ({shown(experts.expert_bytes, 'byte')} packed) "
                f"in the mapped file and holds {shown(experts.cache_bytes, 'byte')} of them packed "
                "at a time.",
                None,
            )
        )
    if (placed := found.placed) is not None:
        verdicts.append((f"{placed_words(placed, lambda size: shown(size, 'byte'))}.", None))
    return PlanPart(
        title="Does it fit",
        subject=subject,
        verdicts=tuple(verdicts),
        tiles=(
            (f"needed{each}", shown(memory.needed.value, "byte")),
            (f"usable{each}", shown(memory.usable.value, "byte")),
            (found.most_context.name, f"{found.most_context.value:,.0f}"),
            (found.most_users.name, f"{found.most_users.value:,.0f}"),
        ),
        plots=tuple(one for one in (_bar(found), _growth(found)) if one is not None),
        sheets=(_memory(found), *_changes(found)),
        assumptions=found.notes,
        quantities=found.quantities,
    )


def _bar(found: Fit) -> Plot:
    memory = found.memory
    parts = [
        Part(
            Key(one.name, colour),
            one.value / 1e9,
            f"{one.name}: {shown(one.value, 'byte')} ({band(*one.band, 'byte')})",
        )
        for one, colour in zip(memory.components, _COLOURS, strict=True)
    ]
    usable = memory.usable.value / 1e9
    return stacked_bar(
        "Memory" + (" of each device" if memory.place.devices > 1 else ""),
        parts,
        limit=usable,
        limit_name=f"usable {usable:,.1f} GB",
        axis="GB",
        label=compact,
    )


def _growth(found: Fit) -> Plot | None:
    """What is needed as contexts grow, for the users asked for and for one."""
    memory, load = found.memory, found.load
    fixed = memory.usable.value - memory.free_for_kv.value
    most = max(found.most_context.value, load.context_tokens, 1024)
    contexts = sorted({round(most * step / 24) or 1 for step in range(25)} | {load.context_tokens})
    lines = []
    for place, users in enumerate(dict.fromkeys((load.users, 1))):
        name = f"{users:,} at once" if users > 1 else "one request"
        points = [
            Point(
                tokens,
                (fixed + users * memory.cache.request_bytes(tokens)) / 1e9,
                f"{name}, {tokens:,} tokens",
                hollow=False,
            )
            for tokens in contexts
        ]
        lines.append(Line(Key(name, ("c2", "c1")[place], (None, "6 3")[place]), points, dots=False))
    usable = memory.usable.value / 1e9
    return lines_plot(
        "Memory as the context grows",
        lines,
        Axis("tokens of a request", compact),
        Axis("GB" + (" of each device" if memory.place.devices > 1 else ""), compact),
        across=[(usable, "usable")],
        upright=[(load.context_tokens, f"given: {load.context_tokens:,}")],
        caption="Values are the middle of the band; the tables have both ends.",
        wide=True,
    )


def _memory(found: Fit) -> Sheet:
    memory = found.memory
    rows = (*memory.components, memory.needed, memory.usable, memory.free_for_kv)
    missing = next((one for one in found.quantities if one.id == "missing"), None)
    return Sheet(
        "Memory" + (" of each device" if memory.place.devices > 1 else ""),
        ("figure and id", "value", "", "band"),
        tuple(
            figure_row(one, bytes_too=True)
            for one in (*rows, *(() if missing is None else (missing,)))
        ),
    )


def _changes(found: Fit) -> tuple[Sheet, ...]:
    if not found.changes:
        return ()
    rows = tuple(
        (
            Cell(one.text, saving_id(one)),
            Cell(one.option),
            Cell("yes" if one.enough else "no", "", one.enough),
            Cell(shown(one.saving_bytes, "byte")),
        )
        for one in found.changes
    )
    return (
        Sheet("What would make it fit", ("change and id", "option", "enough", "saves"), rows,
              ("Changes that are enough alone come first, ordered by what is lost.",), names=3),
    )  # fmt: skip
