"""`headrace catalog coverage`: what headrace does with each item of the catalog's guides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from headrace.catalog.coverage import count_does, load_coverage, summary
from headrace.catalog.names import hint
from headrace.cli.catalog.tables import new_console, new_table, print_lines
from headrace.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headrace.catalog.coverage import Coverage, Item


def print_coverage(
    does: Collection[str], topics: Collection[str], documents: Collection[str], as_json: bool
) -> None:
    """The counts, or with a filter the items that it leaves.

    Raises CatalogError for a topic or document that does not exist.
    """
    coverage = load_coverage()
    _check("topic", topics, coverage.topics())
    _check("document", documents, coverage.documents)
    items = [
        item
        for item in _of_documents(coverage, documents)
        if (not does or item.does in does) and (not topics or item.topic in topics)
    ]
    if as_json:
        click.echo(msgspec.json.encode(_json(coverage, items)))
    elif does or topics or documents:
        _print_items(items)
    else:
        _print_counts(coverage)


def _check(name: str, given: Collection[str], known: Collection[str]) -> None:
    for value in given:
        if value not in known:
            raise CatalogError(f"--{name} {value!r} does not exist; {hint(value, known)}")


def _of_documents(coverage: Coverage, documents: Collection[str]) -> Sequence[Item]:
    if not documents:
        return coverage.items
    wanted = {item.id for document in documents for item in coverage.of(document)}
    return [item for item in coverage.items if item.id in wanted]


_COLUMNS = ("items", "runs", "part", "plans", "knows", "rejected")
_LEGEND = (
    "An item is a section, table row, formula, block of code, checklist item or\n"
    "pitfall of a guide.\n"
    "  runs      a command or test here executes it\n"
    "  part      some of it is executed; --does part lists what is missing\n"
    "  plans     `headrace plan` computes, simulates or checks it; nothing is run\n"
    "  knows     the catalog has it as a fact (`headrace catalog show`)\n"
    "  rejected  not taken over; --does rejected lists the reasons"
)


def _print_counts(coverage: Coverage) -> None:
    console = new_console()
    click.echo(summary(coverage.items))
    click.echo(_LEGEND)
    groups = {
        "guide": {name: coverage.of(name) for name in coverage.documents},
        "topic": coverage.topics(),
    }
    for title, rows in groups.items():
        table = new_table(None, title, *_COLUMNS)
        for name, items in rows.items():
            table.add_row(name, str(len(items)), *map(str, count_does(items).values()))
        console.print(table)
    click.echo("`headrace catalog coverage --does part` lists items with what is missing.")


def _print_items(items: Sequence[Item]) -> None:
    console = new_console()
    click.echo(f"{len(items)} items" if items else "no item matches; omit a filter")
    for item in items:
        lines = [f"{item.does}: {item.name} ({item.topic})"]
        if item.missing:
            lines.append(f"missing: {item.missing}")
        if item.rejected:
            lines.append(f"because: {item.rejected}")
        lines += [f"by: {shown_by}" for shown_by in item.by]
        print_lines(console, item.id, lines)


def _json(coverage: Coverage, items: Sequence[Item]) -> dict[str, Any]:
    documents = [
        {"id": name, "items": len(coverage.of(name)), "repeats": document.repeats,
         "does": count_does(coverage.of(name)), "kinds": coverage.kinds_of(name),
         "answers": coverage.answers_of(name)}
        for name, document in coverage.documents.items()
    ]  # fmt: skip
    topics = [
        {"id": name, "items": len(found), "does": count_does(found)}
        for name, found in coverage.topics().items()
    ]
    return {
        "total": len(coverage.items),
        "does": count_does(coverage.items),
        "documents": documents,
        "topics": topics,
        "items": items,
    }
