"""Tables that people sort and filter in the browser, and that are plain tables without a script.

A line may unfold below its first cell: a `<details>`, which needs no script. The script makes the
headings buttons and puts a field for words above each table; it changes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.page.figures import DASH
from headrace.page.markup import Markup, tag


class Field(NamedTuple):
    """A cell."""

    text: str
    order: float | None = None
    """What it is sorted by where that is a number."""
    about: str = ""
    """Shown on pointing at it."""
    mark: str = ""
    """A word in small letters below the text."""


class Line(NamedTuple):
    """A row. more: what unfolds below its first cell; empty without. anchor: an id in the page."""

    fields: tuple[Field, ...]
    more: Markup = Markup("")
    anchor: str | None = None


class Heading(NamedTuple):
    """The heading of a column."""

    text: str
    figure: bool = False
    """Whether the column is right-aligned and sorted by number."""
    about: str = ""


class Listing(NamedTuple):
    """A table for people to look things up in."""

    title: str
    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


LISTING_STYLE = """
.list th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;
text-align:inherit}
.list th button::after{content:"\\00a0\\2195";opacity:.45}
.list th[aria-sort=ascending] button::after{content:"\\00a0\\2191";opacity:1}
.list th[aria-sort=descending] button::after{content:"\\00a0\\2193";opacity:1}
.list th{white-space:nowrap;vertical-align:bottom}.list td{min-width:4.5em;max-width:26em}
.list td:first-child{min-width:5em}.list td.n.wordy{white-space:normal}
.list td.short{white-space:nowrap}
.list td.phrase{min-width:9em}.list td.wordy{min-width:20em}
.list td.phrase:first-child,.list td.wordy:first-child{min-width:11em}
.list summary{cursor:pointer}.list details[open]{min-width:min(74vw,560px)}
.list details table{font-size:12px;margin:4px 0 8px;width:auto}
.list details td,.list details td:first-child{min-width:0}
.find{font:inherit;color:inherit;background:var(--page);border:1px solid var(--line);
border-radius:6px;padding:2px 8px;width:min(100%,260px)}
.found{color:var(--ink2);font-size:12px;margin-left:8px}
@media(max-width:760px){.list td.wordy{min-width:13em}}
@media print{.find,.found,.list th button::after{display:none}.scroll{overflow:visible}}
"""

LISTING_SCRIPT = """
;(function(){var lists=[],all=[];
function words(s){return s.toLowerCase().split(/\\s+/).filter(Boolean)}
function textOf(c){var s=c.querySelector('summary');return (s?s:c).textContent}
function show(l){var w=words(l.input?l.input.value:'').concat(all),n=0;
l.rows.forEach(function(r){var ok=w.every(function(x){return r.text.indexOf(x)>=0});
r.row.hidden=!ok;if(ok)n++});
l.count.textContent=w.length?n+' of '+l.rows.length:''}
function input(label){var i=document.createElement('input');i.type='search';i.className='find';
i.placeholder=label;i.setAttribute('aria-label',label);return i}
document.querySelectorAll('table.list').forEach(function(t){
var body=t.tBodies[0],heads=Array.from(t.tHead.rows[0].cells);
var l={rows:Array.from(body.rows).map(function(r){return{row:r,
text:Array.from(r.cells).map(textOf).join(' ').toLowerCase()}}),
count:document.createElement('span')};
l.count.className='found';lists.push(l);
var box=document.createElement('div');
if(l.rows.length>7){l.input=input('Filter by words');box.append(l.input);
l.input.addEventListener('input',function(){show(l)})}
box.append(l.count);t.parentNode.before(box);
heads.forEach(function(h,at){var b=document.createElement('button');b.type='button';
b.append.apply(b,Array.from(h.childNodes));h.append(b);
b.addEventListener('click',function(){
var down=h.getAttribute('aria-sort')==='ascending'?-1:1;
heads.forEach(function(o){o.removeAttribute('aria-sort')});
h.setAttribute('aria-sort',down>0?'ascending':'descending');
var numbers=h.classList.contains('n');
var keyed=Array.from(body.rows).map(function(r){var c=r.cells[at],v=c.dataset.order;
if(numbers)return[r,v===undefined?null:+v];var s=textOf(c);return[r,s==='\\u2013'?null:s]});
keyed.sort(function(a,b){if(a[1]===null||b[1]===null)return(a[1]===null)-(b[1]===null);
return down*(numbers?a[1]-b[1]:a[1].localeCompare(b[1],'en',{numeric:true}))});
keyed.forEach(function(k){body.append(k[0])})})})});
var place=document.querySelector('[data-find-all]');
if(place){var every=input('Filter all tables');place.append(every);
every.addEventListener('input',function(){all=words(every.value);lists.forEach(show)})}
function unfold(){var o=location.hash&&document.getElementById(location.hash.slice(1));
if(o)for(var d=o;d;d=d.parentElement)if(d.tagName==='DETAILS')d.open=true}
addEventListener('hashchange',unfold);unfold()})()
"""

_PHRASE, _WORDY = 12, 40
"""Columns with longer texts than that are given room: else the cells beside them grow tall."""


def listing_markup(of: Listing) -> Markup:
    """The table with title and notes; give the page LISTING_STYLE and LISTING_SCRIPT too."""
    head = tag(
        "tr",
        *[
            tag(
                "th",
                heading.text,
                class_="n" if heading.figure else None,
                scope="col",
                title=heading.about or None,
            )
            for heading in of.headings
        ],
    )
    classes = [
        _class(heading, max((len(line.fields[at].text) for line in of.lines), default=0))
        for at, heading in enumerate(of.headings)
    ]
    rows = [_row(line, classes) for line in of.lines]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="list")
    notes = [tag("p", note, class_="note") for note in of.notes]
    title = f"{of.title} ({len(of.lines)})"
    return tag("div", tag("h3", title), *notes, tag("div", table, class_="scroll"), class_="sheet")


def _class(heading: Heading, longest: int) -> str:
    if heading.figure:
        # Several figures in a cell may break; a single one may not.
        return "n" if longest <= _WORDY else "n wordy"
    return "wordy" if longest > _WORDY else "phrase" if longest > _PHRASE else "short"


def _row(line: Line, classes: Sequence[str]) -> Markup:
    cells = []
    for at, (field, class_) in enumerate(zip(line.fields, classes, strict=True)):
        text: list[str] = [field.text or DASH]
        if at == 0 and line.more:
            text = [tag("details", tag("summary", field.text), line.more)]
        if field.mark:
            text.append(tag("small", field.mark))
        cells.append(
            tag(
                "td",
                *text,
                class_=class_,
                data_order=None if field.order is None else f"{field.order:.10g}",
                title=field.about or None,
            )
        )
    return tag("tr", *cells, id=line.anchor)
