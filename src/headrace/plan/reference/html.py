"""The reference as one page: tables to sort and filter, plots, and trees that unfold.

It needs no network and, but for sorting and filtering, no script. What stands behind a figure is in
three places: pointing at a cell tells source, date, confidence and notes; a line's name unfolds all
facts of the row; numbers in brackets lead to the sources, C numbers to the contradictions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from headrace.catalog import Catalog, Fact
from headrace.catalog.rows import Decision
from headrace.catalog.rows.decision import Node, Option
from headrace.catalog.shown_value import shown_value
from headrace.page import listing
from headrace.page.listing import Field, Heading, Listing, listing_markup
from headrace.page.markup import Markup, join, tag
from headrace.page.page import page
from headrace.plan.reference.plots import topic_plots
from headrace.plan.reference.table import Entry, Line, Table
from headrace.plan.reference.topics import Topic
from headrace.plan.reference.walk import taken

_STYLE = """
main{max-width:1600px}.facts td:nth-child(4){white-space:nowrap}
nav{columns:3 240px;margin:14px 0}nav p{margin:0 0 4px;break-inside:avoid}
a{color:var(--c1)}.notes a,td a,.facts a{text-decoration:none}
section{scroll-margin-top:8px}.plots{grid-template-columns:minmax(0,1fr)}
tr:target,details:target>summary{outline:2px solid var(--c1)}
.tree details{margin:2px 0 2px 2px;padding-left:14px;border-left:2px solid var(--grid)}
.tree summary{cursor:pointer;padding:2px 0}.tree>details{border-left:0;padding-left:0}
.tree details[open]>summary{font-weight:600}.tree .ask{margin:4px 0;color:var(--ink2)}
.tree ul{margin:2px 0;padding-left:18px}
@media(max-width:760px){main{padding:14px 10px 40px}}
"""


def reference_page(
    known: Catalog, topics: Sequence[tuple[Topic, tuple[Table, ...]]], *, made_on: dt.date
) -> str:
    """The whole document. topics: each with the tables to show. made_on: the day it is made."""
    writer = _Writer(known, {topic.name for topic, _ in topics})
    parts: list[str] = [
        tag("h1", "headrace: reference"),
        tag(
            "p",
            f"What the catalog knew on {made_on}. Point at a cell, or open a name, for "
            "source, date and confidence; * marks facts that sources disagree about.",
            class_="sub",
        ),
        tag("div", data_find_all="", class_="notes"),
        _contents([topic for topic, _ in topics]),
        *(writer.section(topic, tables) for topic, tables in topics),
    ]
    return page(
        "headrace: reference",
        parts,
        style=listing.LISTING_STYLE + _STYLE,
        script=listing.LISTING_SCRIPT,
    )


def _contents(topics: Sequence[Topic]) -> Markup:
    entries = [
        tag("p", tag("a", one.title, href=f"#{one.name}"), f": {one.about}") for one in topics
    ]
    return tag("nav", *entries, aria_label="Topics")


class _Writer:
    """A writer that knows the catalog and the topics of the page, so that links lead somewhere."""

    def __init__(self, known: Catalog, names: set[str]) -> None:
        self._known = known
        self._names = names
        self._number = {source: at for at, source in enumerate(known.sources, 1)}

    def section(self, topic: Topic, tables: Sequence[Table]) -> Markup:
        plots = topic_plots(self._known, topic.name)
        parts: list[str] = [tag("h2", topic.title), tag("p", f"{topic.about}.", class_="sub")]
        if plots:
            parts.append(tag("div", *[one.markup for one in plots], class_="plots"))
        if topic.name == "trees":
            chosen = {line.id for table in tables for line in table.lines}
            parts += [self._tree(one) for one in self._known.decisions if one.id in chosen]
        parts += [listing_markup(self._listing(one)) for one in tables]
        return tag("section", *parts, id=topic.name)

    def _listing(self, table: Table) -> Listing:
        # The day of a source is a column of its own already.
        dated = not any(line.kind == "source" for line in table.lines)
        headings = [
            Heading("id" if _of_register(table) else "name"),
            *(Heading(one.heading, one.figure, one.about) for one in table.columns),
            *([Heading("source"), Heading("as of"), Heading("sure")] if dated else []),
        ]
        lines = [self._line(one, dated) for one in table.lines]
        return Listing(table.title, tuple(headings), tuple(lines), table.notes)

    def _line(self, line: Line, dated: bool) -> listing.Line:
        mark = " *" if line.disputed_by else ""
        first = Field(line.name + mark, about=f"{line.kind} {line.id}")
        fields = [first, *(self._field(one) for one in line.entries)]
        if dated:
            fields += [
                Field(" ".join(f"[{self._number[one]}]" for one in line.sources),
                      about="; ".join(self._known.sources[one].title for one in line.sources)),
                Field(line.as_of),
                Field(line.confidence.value if line.confidence else ""),
            ]  # fmt: skip
        anchor = None
        if line.kind == "contradiction":
            anchor = line.id
        if line.kind == "source":
            anchor = f"source-{self._number[line.id]}"
            fields[0] = Field(f"[{self._number[line.id]}] {line.id}")
        return listing.Line(tuple(fields), self._facts(line), anchor)

    def _field(self, entry: Entry) -> Field:
        told = [self._told(path, fact) for path, fact in entry.facts.items()]
        disputed = " *" if any(fact.disputed_by for fact in entry.facts.values()) else ""
        return Field(entry.text + disputed, entry.order, "\n".join(told))

    def _told(self, path: str, fact: Fact) -> str:
        """In a line, for pointing at a cell."""
        disputes = [f"disputed {one}: {self._known.contradictions[one].used}"
                    for one in fact.disputed_by]  # fmt: skip
        title = self._known.sources[fact.source].title
        parts = [f"{path}: {title}, {fact.as_of}, {fact.confidence.value}", *disputes, fact.note]
        return "; ".join(filter(None, parts))

    def _facts(self, line: Line) -> Markup:
        """All facts of a row, below its name."""
        if not line.facts:
            return Markup("")
        head = tag("tr", *[tag("th", one) for one in ("fact", "value", "source", "as of", "sure")])
        rows = [
            tag(
                "tr",
                tag("td", path),
                tag("td", shown_value(fact), *([tag("small", fact.note)] if fact.note else [])),
                tag("td", self._source(fact.source), *self._disputes(fact.disputed_by)),
                tag("td", fact.as_of.isoformat()),
                tag("td", fact.confidence.value),
            )
            for path, fact in line.facts.items()
        ]
        also = f", also {', '.join(line.aliases)}" if line.aliases else ""
        return join(
            [
                tag("p", f"{line.kind} {line.id}{also}", class_="note"),
                tag("table", tag("thead", head), tag("tbody", *rows), class_="facts"),
            ]
        )

    def _source(self, source: str) -> Markup:
        at = self._number[source]
        title = self._known.sources[source].title
        return self._link("sources", f"source-{at}", f"[{at}]", title)

    def _disputes(self, ids: Sequence[str]) -> list[Markup]:
        return [
            join(
                [
                    " ",
                    self._link("contradictions", one, one, self._known.contradictions[one].subject),
                ]
            )
            for one in ids
        ]

    def _link(self, topic: str, anchor: str, text: str, title: str) -> Markup:
        if topic not in self._names:
            return tag("span", text, title=title)
        return tag("a", text, href=f"#{anchor}", title=title)

    def _tree(self, tree: Decision) -> Markup:
        """Unfolds answer by answer; of one question only one answer is open at a time."""
        nodes = tree.tree
        return tag(
            "div",
            tag(
                "details",
                tag("summary", f"{tree.name}: {tree.about}"),
                *self._node(tree, nodes, tree.root),
                id=f"tree-{tree.id}",
            ),
            class_="sheet tree",
        )

    def _node(self, tree: Decision, nodes: Mapping[str, Node], node: Node) -> list[Markup]:
        parts = [tag("p", node.question, class_="ask")]
        for option in node.options:
            below = (
                self._end(tree, option)
                if option.leads_to is None
                else self._node(tree, nodes, nodes[option.leads_to])
            )
            # One name for all answers to a question: browsers close the others themselves.
            parts.append(
                tag("details", tag("summary", option.label), *below, name=f"{tree.id}.{node.id}")
            )
        return parts

    def _end(self, tree: Decision, option: Option) -> list[Markup]:
        fact = tree.fact(f"takes.{option.id}")
        rows = [taken(self._known, one) for one in option.takes]
        items = [
            tag("li", tag("b", one.name), f" ({one.kind})", f": {one.about}" if one.about else "")
            for one in rows
        ]
        why = tag(
            "p",
            f"{option.because} ",
            self._source(fact.source),
            f" {fact.as_of}, {fact.confidence.value}",
            *self._disputes(fact.disputed_by),
        )
        note = [tag("p", fact.note, class_="note")] if fact.note else []
        return [tag("ul", *items), why, *note]


def _of_register(table: Table) -> bool:
    return any(line.kind in ("contradiction", "source") for line in table.lines)
