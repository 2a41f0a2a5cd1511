"""The page of the matrix: one file with a table that can be sorted and a line for each provider.

Without its script everything is there, in the order of the providers file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

from headrace.bench.providers import tables
from headrace.bench.providers.figures import Matrix, Point, ProviderFigures, Quartiles
from headrace.bench.providers.round_plot import Place, moment, over_rounds
from headrace.bench.report.sheet import about
from headrace.page.figures import compact, duration, share
from headrace.page.markup import Markup, tag
from headrace.page.page import page, section, sheet_markup
from headrace.page.plots.frame import key_at
from headrace.page.sheet import Cell, Sheet

_STYLE = """
th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;
text-align:inherit}
th button:hover{color:var(--ink)}
th[aria-sort=ascending] button::after{content:" ▲"}
th[aria-sort=descending] button::after{content:" ▼"}
"""

# Cells without a figure stay last, whichever way the others go.
_SCRIPT = """
document.querySelectorAll('th button').forEach(function(b){b.addEventListener('click',function(){
var h=b.parentNode,t=h.closest('table'),at=h.cellIndex,was=h.getAttribute('aria-sort'),
to=was?(was==='ascending'?'descending':'ascending'):(b.dataset.first||'ascending'),
sign=to==='ascending'?1:-1,body=t.tBodies[0];
t.querySelectorAll('th').forEach(function(o){o.removeAttribute('aria-sort')});
h.setAttribute('aria-sort',to);
Array.from(body.rows).sort(function(p,q){
var a=p.cells[at].dataset.v,c=q.cells[at].dataset.v;
if(a===''||c===''){return (a==='')-(c==='')}
return sign*(isNaN(a)||isNaN(c)?a.localeCompare(c):a-c)
}).forEach(function(r){body.appendChild(r)})})})
"""

Get = Callable[[Point], float | None]


def providers_page(of: Matrix, *, zone: tzinfo | None = None) -> str:
    """The whole document. zone: of the times that are shown; None: of this machine."""
    rest = [sheet_markup(one) for one in tables.sheets(of)[1:]]
    title = "headrace bench providers"
    parts: list[str] = [
        tag("h1", title),
        tag("p", subtitle(of, zone), class_="sub"),
        _sortable(tables.side_by_side(of), [_sort_values(one) for one in of.providers]),
        section("Over time", _plots(of, zone)),
        section("More", rest),
        section("What was measured, and how", _provenance(of)),
    ]
    return page(title, parts, style=_STYLE, script=_SCRIPT)


def subtitle(of: Matrix, zone: tzinfo | None) -> str:
    """How much was measured, and when."""
    if of.began_at is None or of.ended_at is None:
        return "nothing has been measured yet"
    begin, end = (moment(at, zone) for at in (of.began_at, of.ended_at))
    until = f"{end:%H:%M}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    rounds = "1 round" if of.rounds == 1 else f"{of.rounds:,} rounds"
    return f"{rounds}, {begin:%Y-%m-%d %H:%M} to {until} {begin:%Z}"


def _sort_values(one: ProviderFigures) -> tuple[str | float | None, ...]:
    """What the columns of the table are sorted by."""

    def p50(spread: Quartiles | None) -> float | None:
        return None if spread is None else spread.p50

    return (
        one.label,
        p50(one.ttft_ms),
        p50(one.tps),
        p50(one.tps_batch),
        p50(one.batching_efficiency),
        p50(one.e2e_ms),
        one.failed / one.requests if one.requests else None,
        one.answered / one.visits if one.visits else None,
        one.cost.input_usd,
        one.cost.output_usd,
        one.cost.per_million,
    )


_PRICES = ("$/M in", "$/M out", "$/M, measured")

# Columns whose better end is the higher one: at the first click the better end comes first.
_HIGHER_FIRST = frozenset({2, 3, 4, 7})


def _sortable(of: Sheet, values: Sequence[tuple[str | float | None, ...]]) -> Markup:
    """The table with what it costs beside it."""
    columns = (*of.columns, *_PRICES)
    head = tag(
        "tr",
        *[
            tag(
                "th",
                tag(
                    "button",
                    name,
                    type="button",
                    data_first="descending" if at in _HIGHER_FIRST else None,
                ),
                class_="n" if at else None,
                scope="col",
            )
            for at, name in enumerate(columns)
        ],
    )
    rows = []
    for cells, keys in zip(of.rows, values, strict=True):
        prices = [Cell(tables.usd(key)) for key in keys[len(cells) :] if not isinstance(key, str)]
        pairs = zip((*cells, *prices), keys, strict=True)
        rows.append(tag("tr", *[_cell(cell, key, at) for at, (cell, key) in enumerate(pairs)]))
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll")
    notes = [tag("p", note, class_="note") for note in of.notes]
    return tag("div", table, *notes, class_="sheet")


def _cell(cell: Cell, key: str | float | None, at: int) -> Markup:
    words = ["n" if at else "", {True: "good", False: "bad", None: ""}[cell.verdict]]
    value = "" if key is None else key if isinstance(key, str) else f"{key:.9g}"
    note = [tag("small", cell.note)] if cell.note else []
    class_ = " ".join(filter(None, words)) or None
    return tag("td", cell.text, *note, class_=class_, data_v=value)


def _plots(of: Matrix, zone: tzinfo | None) -> list[Markup]:
    keys = [key_at(at, one.label) for at, one in enumerate(of.providers)]
    batch = tables.batch_title(of)
    wanted: tuple[tuple[str, str, Get, Callable[[float], str]], ...] = (
        ("TTFT", "median of a round", lambda one: one.ttft_ms, duration),
        ("TPS of one stream", "tokens/s", lambda one: one.tps, compact),
        (batch, "tokens/s", lambda one: one.tps_batch, compact),
        ("E2E latency", "median of a round", lambda one: one.e2e_ms, duration),
    )
    found = []
    for title, y_title, get, y_label in wanted:
        lines = [
            (key, [_place(point, get, zone) for point in one.over_time])
            for key, one in zip(keys, of.providers, strict=True)
        ]
        plot = over_rounds(title, lines, zone=zone, y_title=y_title, y_label=y_label)
        if plot is not None:
            found.append(plot.markup)
    return [tag("div", *found, class_="plots")] if found else []


def _place(point: Point, get: Get, zone: tzinfo | None) -> Place:
    return Place(
        at=point.at,
        value=get(point),
        failed=point.failed > 0,
        told=f"{moment(point.at, zone):%Y-%m-%d %H:%M:%S}, round {point.round}",
    )


def _provenance(of: Matrix) -> list[Markup]:
    rows = tuple(
        (
            Cell(one.label),
            Cell(one.model),
            Cell(one.type),
            Cell(one.base_url),
            Cell(" · ".join(filter(None, (one.region, one.notes)))),
        )
        for one in of.providers
    )
    columns = ("provider", "model", "API", "address", "notes")
    made = [sheet_markup(Sheet("Endpoints", columns, rows, names=5))]
    for number, workload in enumerate(of.workloads, start=1):
        facts = {name: value for name, value in workload.items() if value is not None}
        title = "Workload" if len(of.workloads) == 1 else f"Workload {number}"
        made.append(sheet_markup(about(facts)._replace(title=title)))
    told = {name: value for name, value in of.about.items() if _is_plain(value)}
    made.append(sheet_markup(about(told)._replace(title="Measured with")))
    fairness = (
        "Providers are measured one after another, in an order that is shuffled and rotated. "
        "Each request is sent once, over a connection made before; TTFT begins when its last "
        "byte was handed to the network. Tokens are counted by each server with its own "
        "tokenizer: compare characters per second (in the JSON) where tokenizers differ much."
    )
    shares = [f"{one.label}: {share(one.cached_share)}" for one in of.providers if one.cached_share]
    cached = f" Found in caches, as the servers report: {', '.join(shares)}." if shares else ""
    return [*made, tag("p", fairness + cached, class_="note")]


def _is_plain(value: object) -> bool:
    return value is not None and isinstance(value, (str, int, float))
