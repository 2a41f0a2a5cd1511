"""The frame of a page: one file that needs no network, for either colour scheme and for paper.

Its styles and its script stand in it, and a policy forbids it to load or run anything else. The
script only sets what its buttons say; without it the page shows everything.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from headrace.page.markup import Markup, join, tag
from headrace.page.sheet import Cell, Sheet

_LIGHT = """
--page:#f6f6f4;--card:#fff;--ink:#14140f;--ink2:#55554f;--grid:#e7e6e1;--line:#c9c8c1;
--c1:#2a78d6;--c2:#eb6834;--c3:#1a9e70;--c4:#4a3aa7;--c5:#b98400;--c6:#c0407c;
--good:#0a7a0a;--bad:#cf3030;
--h1:#dcebfb;--h2:#b7d3f6;--h3:#86b6ef;--h4:#5598e7;--h5:#2a78d6;--h6:#1c5cab;--h7:#0d366b
"""

_DARK = """
--page:#0e0e0d;--card:#191918;--ink:#f4f4f1;--ink2:#b9b8b0;--grid:#2b2b29;--line:#4a4a46;
--c1:#4d97ee;--c2:#e0703f;--c3:#26a97c;--c4:#9a8ff0;--c5:#cf9a1e;--c6:#de6fa0;
--good:#4cc24c;--bad:#f07070;
--h1:#102a4a;--h2:#15407a;--h3:#1c5cab;--h4:#2a78d6;--h5:#5598e7;--h6:#9ec5f4;--h7:#e3f0ff
"""

_RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1160px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:24px;margin:0 0 2px;overflow-wrap:anywhere}
h2{font-size:18px;margin:34px 0 10px}h3{font-size:14px;margin:0 0 4px}
p{margin:4px 0}.sub,.note,figcaption{color:var(--ink2)}.note,figcaption{font-size:12px}
.sub{overflow-wrap:anywhere}
.bar{display:flex;flex-wrap:wrap;gap:8px 20px;margin:14px 0 4px;color:var(--ink2);font-size:13px}
.bar button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);
padding:2px 10px;cursor:pointer;margin-left:-1px}
.bar button:first-of-type{border-radius:6px 0 0 6px;margin-left:6px}
.bar button:last-of-type{border-radius:0 6px 6px 0}
.bar button[aria-pressed=true]{background:var(--c1);border-color:var(--c1);color:#fff}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:16px 0}
.tile,figure,.sheet,.verdict{background:var(--card);border:1px solid var(--grid);border-radius:8px}
.tile{padding:10px 14px}.tile b{display:block;font-size:22px;font-weight:600;line-height:1.3}
.tile span{color:var(--ink2);font-size:12px}
.verdict{padding:10px 14px;margin:10px 0;border-left:4px solid var(--ink2)}
.verdict.good{border-left-color:var(--good)}.verdict.bad{border-left-color:var(--bad)}
.plots{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px}
figure{margin:0;padding:12px 14px;display:flex;flex-direction:column}figure.wide{grid-column:1/-1}
figcaption{margin-top:4px;overflow-wrap:anywhere}
figure>svg{width:100%;height:auto;display:block;margin-top:auto;font-size:11px;font-variant-numeric:tabular-nums}
svg text{fill:var(--ink2)}svg .title{text-anchor:middle}
.grid{stroke:var(--grid);fill:none}.axis{stroke:var(--line);fill:none}
.curve{fill:none;stroke-width:2;stroke-linejoin:round}.dot{stroke:var(--card);stroke-width:1.5}
.limit{stroke:var(--ink2);stroke-width:1.2;stroke-dasharray:5 4}
svg .note{fill:var(--ink);font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:3px}
svg .name{paint-order:stroke;stroke:var(--card);stroke-width:3px}
.cross{stroke:var(--bad);stroke-width:1.4;fill:none}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;color:var(--ink2)}
.legend svg{display:inline-block;width:22px;height:10px;vertical-align:0}
.sheet{margin:12px 0;padding:10px 14px}.sheets{display:grid;gap:12px;align-items:start;
grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}.sheets .sheet{margin:0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:3px 10px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid);
overflow-wrap:break-word}
th{color:var(--ink2);font-weight:500;font-size:12px}
tr{break-inside:avoid}tr:last-child td{border-bottom:0}
th.n,td.n{text-align:right;white-space:nowrap}
td small{display:block;color:var(--ink2);font-size:11px}td.long{overflow-wrap:anywhere}
.good{color:var(--good)}.bad{color:var(--bad)}.verdict.good,.verdict.bad{color:inherit}
[data-clock=intended] .sent,[data-clock=sent] .intended{display:none}
@media screen and (max-width:760px){.plots{grid-template-columns:minmax(0,1fr)}
figure{padding:12px 10px}figure>svg{font-size:14px}
figure.wide{overflow-x:auto}
figure.wide>svg{width:760px;max-width:none;flex:none;font-size:12px}}
@page{margin:12mm}
h2,h3{break-after:avoid}
@media print{.bar{display:none}body{background:#fff;font-size:11px}main{max-width:none;padding:0}
figure,.sheets .sheet,.tile,.verdict{break-inside:avoid;border-color:#ccc}
.sheet{border-color:#ccc}.plots{gap:8px}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

_STYLE = (
    f":root{{color-scheme:light;{_LIGHT}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{_DARK}}}}}"
    f"@media screen{{:root[data-scheme=light]{{color-scheme:light;{_LIGHT}}}"
    f":root[data-scheme=dark]{{color-scheme:dark;{_DARK}}}}}"
    f"{_RULES}"
)

_SCRIPT = """
document.querySelectorAll('[data-set]').forEach(function(b){b.addEventListener('click',function(){
var k=b.dataset.set,r=document.documentElement;
if(b.value){r.dataset[k]=b.value}else{delete r.dataset[k]}
document.querySelectorAll('[data-set="'+k+'"]').forEach(function(o){
o.setAttribute('aria-pressed',o===b)})})})
"""


def page(
    title: str, parts: Sequence[str], *, clocks: bool = False, style: str = "", script: str = ""
) -> str:
    """A whole document. clocks: with buttons that show the curves of one clock alone.

    style, script: of the page alone, behind what all have; they must hold nothing from outside.
    """
    style, script = _STYLE + style, _SCRIPT + script
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    choices = [
        _choice("Colours", "scheme", (("as the system", ""), ("light", "light"), ("dark", "dark")))
    ]
    if clocks:
        choices.append(
            _choice(
                "Latency from", "clock", (("both", ""), ("intended", "intended"), ("sent", "sent"))
            )
        )
    body = tag(
        "body",
        tag("main", tag("div", *choices, class_="bar"), *parts),
        tag("script", Markup(script)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _hash(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"


def _choice(name: str, sets: str, values: Sequence[tuple[str, str]]) -> Markup:
    buttons = [
        tag(
            "button",
            label,
            type="button",
            value=value,
            data_set=sets,
            aria_pressed="false" if value else "true",
        )
        for label, value in values
    ]
    return tag("div", name, *buttons)


def section(title: str, parts: Sequence[str]) -> Markup:
    """Nothing where there are no parts."""
    return join([tag("h2", title), *parts]) if parts else Markup("")


def sheet_markup(of: Sheet) -> Markup:
    """A table with its title and notes."""
    head = tag(
        "tr",
        *[
            tag("th", name, class_=_class(at, of), scope="col")
            for at, name in enumerate(of.columns)
        ],
    )
    rows = [tag("tr", *[_cell(cell, at, of) for at, cell in enumerate(row)]) for row in of.rows]
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll")
    notes = [tag("p", note, class_="note") for note in of.notes]
    return tag("div", tag("h3", of.title), table, *notes, class_="sheet")


def _class(at: int, of: Sheet) -> str | None:
    return "n" if at >= of.names else None


_LONG = 60
"""Beyond so many characters a cell may break anywhere: commands and addresses have no spaces."""


def _cell(cell: Cell, at: int, of: Sheet) -> Markup:
    words = [_class(at, of), {True: "good", False: "bad", None: None}[cell.verdict]]
    if len(cell.text) > _LONG:
        words.append("long")
    note = [tag("small", cell.note)] if cell.note else []
    return tag("td", cell.text, *note, class_=" ".join(filter(None, words)) or None)
