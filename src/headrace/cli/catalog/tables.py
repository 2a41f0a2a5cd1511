"""What `headrace catalog` prints: tables that fit 80 columns, and JSON with all there is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headrace.catalog.names import plain
from headrace.catalog.rows import Decision
from headrace.catalog.shown_value import shown_value, with_unit
from headrace.cli.catalog.decision import decision_tree
from headrace.cli.visible import visible
from headrace.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from headrace.catalog import Catalog, Contradiction, Fact
    from headrace.catalog.difference import Difference
    from headrace.catalog.rows import Row

# Files and pipes have no width; names are not broken over lines there.
_WIDE_COLUMNS = 240
# From so many on there is room for the longest names of facts; with less they get so much.
_ROOMY_COLUMNS = 110
_NAME_COLUMNS = 24
# Columns of a list, by kind: heading and field. The last may be long text.
_COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "model": (("total", "total_parameters"), ("active", "active_parameters"),
              ("context", "context_tokens"), ("licence", "licence")),
    "hardware": (("memory", "memory_bytes"), ("bandwidth", "bandwidth_bytes_per_s"),
                 ("dense bf16", "dense_bf16_flops")),
    "quantization": (("bits", "bits_per_weight"), ("quality", "quality"), ("method", "method")),
    "runtime": (("kind", "category"), ("best for", "best_for")),
    "provider": (("kind", "category"), ("best for", "best_for")),
    "price": (("in", "input_usd_per_million_tokens"), ("out", "output_usd_per_million_tokens"),
              ("cached", "cache_read_usd_per_million_tokens"), ("from", "effective_from")),
    "technique": (("kind", "category"), ("does", "does")),
    "measurement": (("tokens/s", "output_tokens_per_s"), ("TTFT", "ttft_s"),
                    ("conditions", "conditions")),
    "constant": (("figure", "figure"), ("rule", "rule")),
    "decision": (("topic", "topic"), ("about", "about")),
    "rule": (("strength", "strength"), ("says", "says")),
}  # fmt: skip
# Of rows that are new or gone, only what a list shows; --json has all.
_OF_WHOLE_ROWS = {kind: {field for _, field in columns} for kind, columns in _COLUMNS.items()}


def row_json(kind: str, row: Row, known: Catalog | None = None) -> str:
    """One row with all its facts; with `known`, also what it is disputed by and its sources."""
    entry: dict[str, Any] = {
        "kind": kind, "id": row.id, "name": row.name, "aliases": row.aliases,
        "facts": {path: msgspec.to_builtins(fact) for path, fact in row.facts.items()},
    }  # fmt: skip
    if known is not None:
        entry["disputes"] = [known.contradictions[name] for name in row.disputed_by]
        entry["sources"] = [known.sources[name] for name in _sources(row)]
    return msgspec.json.encode(entry).decode()


def print_rows(found: Mapping[str, Sequence[Row]]) -> None:
    """A table for each kind."""
    console = new_console()
    for kind, rows in found.items():
        table = new_table(f"{kind} ({len(rows)})", "id", *(title for title, _ in _COLUMNS[kind]))
        for row in rows:
            mark = " *" if row.disputed_by else ""
            table.add_row(
                visible(row.id) + mark,
                *(visible(_short(row.facts.get(field))) for _, field in _COLUMNS[kind]),
            )
        console.print(table)
    if any(row.disputed_by for rows in found.values() for row in rows):
        console.print("* sources disagree; `headrace catalog show ID` says how")


def print_row(known: Catalog, kind: str, row: Row) -> None:
    """All facts of a row, then their notes, disputes and sources."""
    console = new_console()
    names = f" (also {', '.join(row.aliases)})" if row.aliases else ""
    console.print(visible(f"{row.name}: {kind} {row.id}{names}"), soft_wrap=False)
    sources = _sources(row)
    number = {source: f"[{place}]" for place, source in enumerate(sources, 1)}
    if isinstance(row, Decision):
        console.print(decision_tree(row, number))
    else:
        console.print(_facts(row, number, console))
    noted = [(path, fact.note) for path, fact in row.facts.items() if fact.note]
    print_lines(console, "Notes", [f"{path}: {note}" for path, note in noted])
    disputes = [known.contradictions[name] for name in row.disputed_by]
    disputed = [
        f"{dispute.id} {dispute.subject}: {dispute.used} ({dispute.why})" for dispute in disputes
    ]
    print_lines(console, "Disputed", disputed)
    cited = [known.sources[source] for source in sources]
    print_lines(console, "Sources", [
        f"{number[source.id]} {source.title}, {source.date.isoformat()} ({source.id})"
        + (f", {source.url}" if source.url else "")
        for source in cited
    ])  # fmt: skip


def _facts(row: Row, number: Mapping[str, str], console: Console) -> Table:
    table = new_table(None, "fact", "value", "source", "as of", "sure", "see")
    for path, fact in row.facts.items():
        table.add_row(
            _broken(visible(path), console), visible(shown_value(fact)), number[fact.source],
            fact.as_of.isoformat(), fact.confidence.value, ", ".join(fact.disputed_by),
        )  # fmt: skip
    return table


def print_contradiction(known: Catalog, dispute: Contradiction, as_json: bool) -> None:
    """A contradiction and the facts that carry it."""
    carried = known.disputed_rows(dispute.id)
    if as_json:
        rows = [{"kind": kind, "id": row, "field": field} for kind, row, field in carried]
        click.echo(msgspec.json.encode({**msgspec.to_builtins(dispute), "rows": rows}))
        return
    console = new_console()
    console.print(visible(f"{dispute.id} {dispute.subject}"))
    statements = [f"{known.sources[s.source].title}: {s.says}" for s in dispute.statements]
    print_lines(console, "Stated", statements)
    print_lines(console, "Used here", [dispute.used])
    print_lines(console, "Because", [dispute.why])
    facts = [f"{kind} {row}, {field}" for kind, row, field in carried]
    print_lines(console, "Carried by", [*facts, *dispute.carried_by])


def print_contradictions(known: Catalog, text: str, as_json: bool) -> None:
    """The register, or what of it has every word of `text`."""
    words = [plain(word) for word in text.split()]
    found = [
        dispute
        for dispute in known.contradictions.values()
        if all(
            word in plain(f"{dispute.id} {dispute.subject} {dispute.used} {dispute.why}")
            for word in words
        )
    ]
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    if not found:
        raise CatalogError(f"no contradiction matches {text!r}; omit a word")
    table = new_table(None, "id", "subject", "stated", "used here")
    for dispute in found:
        stated = "; ".join(f"{each.source}: {each.says}" for each in dispute.statements)
        table.add_row(dispute.id, visible(dispute.subject), visible(stated), visible(dispute.used))
    new_console().print(table)


def print_differences(found: Sequence[Difference], as_json: bool) -> None:
    """What differs; equal values with other sources or dates are counted in one line."""
    if as_json:
        click.echo(msgspec.json.encode([msgspec.to_builtins(difference) for difference in found]))
        return
    values = [difference for difference in found if difference.of_value]
    if values:
        console = new_console()
        table = new_table(None, "row", "fact", "old", "new")
        for value in values:
            if value.of_row == "both" or value.field in _OF_WHOLE_ROWS[value.kind]:
                whole = "" if value.of_row == "both" else f" ({value.of_row})"
                table.add_row(
                    visible(value.row) + whole, _broken(visible(value.field), console),
                    visible(shown_value(value.old)), visible(shown_value(value.new)),
                )  # fmt: skip
        console.print(table)
    rest = len(found) - len(values)
    if rest:
        click.echo(
            f"{rest} values are the same with another source, date or note; --json lists them"
        )
    if not found:
        click.echo("no difference")


def _sources(row: Row) -> list[str]:
    return list(dict.fromkeys(fact.source for fact in row.facts.values()))


def _short(fact: Fact | None) -> str:
    """For a list: without the second of two units."""
    if fact is not None and fact.unit == "byte" and isinstance(fact.value, int):
        return with_unit(fact.value, fact.unit).partition(" (")[0]
    return shown_value(fact)


def new_table(title: str | None, *headings: str) -> Table:
    """A table without frames, under the headings."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
    )
    for heading in headings:
        # Identifiers are looked up, so they stay whole where there is room.
        wide = heading in ("id", "fact", "row")
        table.add_column(heading, overflow="fold", min_width=24 if wide else None)
    return table


def new_console() -> Console:
    """What output goes to; wide where it is a file or a pipe."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE_COLUMNS
    return console


def _broken(name: str, console: Console) -> str:
    """A long name of a fact over lines that end where a word of it does; whole where it is wide."""
    if console.width >= _ROOMY_COLUMNS or len(name) <= _NAME_COLUMNS:
        return name
    cut = max(name.rfind(mark, 0, _NAME_COLUMNS) for mark in "_.-") + 1 or _NAME_COLUMNS
    return f"{name[:cut]}\n  {_broken(name[cut:], console)}"


def print_lines(console: Console, title: str, lines: Sequence[str]) -> None:
    """Lines under a title, indented; nothing where there are none."""
    from rich.padding import Padding
    from rich.text import Text

    if lines:
        console.print(f"\n{title}")
        for line in lines:
            console.print(Padding(Text(visible(line)), (0, 0, 0, 2)))
