"""Tables of what is no row of facts: contradictions, sources, and the list of decision trees."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.catalog import Catalog
from headrace.catalog.rows import Decision
from headrace.page.figures import DASH
from headrace.plan.reference.table import Column, Entry, Line, Table

_NO_FIELD = ""


def contradictions(known: Catalog) -> Table:
    """Every contradiction: what sources say, what is used, why, and which rows carry it."""
    lines = []
    for one in known.contradictions.values():
        said = [f"{known.sources[each.source].title}: {each.says}" for each in one.statements]
        rows = dict.fromkeys(row for _, row, _ in known.disputed_rows(one.id))
        carried = [*rows, *one.carried_by]
        texts = (one.subject, "; ".join(said), one.used, one.why, ", ".join(carried) or DASH)
        lines.append(
            _register_line(
                known, "contradiction", one.id, texts, [each.source for each in one.statements]
            )
        )
    headings = ("subject", "said", "used here", "because", "carried by")
    return Table("Contradictions", _columns(headings), tuple(lines))


def sources(known: Catalog) -> Table:
    """Every source with its date and address."""
    lines = [
        _register_line(
            known, "source", one.id,
            (one.title, one.date.isoformat(), one.publisher or DASH, one.url or DASH,
             one.note or DASH),
            [one.id],
        )
        for one in known.sources.values()
    ]  # fmt: skip
    return Table(
        "Sources", _columns(("title", "date", "publisher", "address", "note")), tuple(lines)
    )


def trees(known: Catalog) -> Table:
    """Every decision tree; `headrace plan reference trees TREE` walks one."""
    lines = [_tree_line(one) for one in known.decisions]
    columns = (
        Column("topic", "topic"), Column("about", "about"),
        Column("first question", "nodes"), Column("ends", "takes", figure=True),
    )  # fmt: skip
    return Table("Trees", columns, tuple(lines))


def _tree_line(one: Decision) -> Line:
    dates = [fact.as_of for fact in one.facts.values()]
    entries = (
        Entry(one.topic, facts={"topic": one.fact("topic")}),
        Entry(one.about, facts={"about": one.fact("about")}),
        Entry(one.root.question, facts={f"nodes.{one.root.id}": one.fact(f"nodes.{one.root.id}")}),
        Entry(str(len(one.paths)), float(len(one.paths))),
    )
    return Line(
        kind="decision",
        id=one.id,
        name=one.name,
        aliases=one.aliases,
        entries=entries,
        facts=one.facts,
        sources=tuple(dict.fromkeys(fact.source for fact in one.facts.values())),
        dates=(min(dates), max(dates)),
        confidence=one.fact("about").confidence,
        disputed_by=one.disputed_by,
    )


def _columns(headings: Sequence[str]) -> tuple[Column, ...]:
    return tuple(Column(one, _NO_FIELD) for one in headings)


def _register_line(
    known: Catalog, kind: str, name: str, texts: Sequence[str], said_by: Sequence[str]
) -> Line:
    dates = [known.sources[one].date for one in said_by]
    return Line(
        kind=kind,
        id=name,
        name=name,
        aliases=(),
        entries=tuple(Entry(text) for text in texts),
        facts={},
        sources=tuple(dict.fromkeys(said_by)),
        dates=(min(dates), max(dates)),
        confidence=None,
        disputed_by=(),
    )
