"""What `headrace plan reference` prints: topics, their tables, and a tree as it is walked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.visible import visible
from headrace.page.figures import DASH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from headrace.catalog import Catalog
    from headrace.catalog.rows import Decision
    from headrace.plan.reference.table import Column, Table
    from headrace.plan.reference.topics import Topic
    from headrace.plan.reference.walk import Walk

# Files and pipes have no width; a line of a table is one line there as far as it can be.
_WIDE_COLUMNS = 240
# What columns are given where the terminal is narrow.
_NAME_COLUMNS, _DAY_COLUMNS, _SOURCE_COLUMNS = 18, 10, 6
_FIGURE_COLUMNS, _TEXT_COLUMNS = 16, 18


def print_topics(shown: Sequence[tuple[Topic, tuple[Table, ...]]]) -> None:
    """The list of topics, with how many lines each has."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn

    drawn = Drawn("topic", "about", box=SIMPLE_HEAD, pad_edge=False)
    drawn.add_column("lines", justify="right")
    for topic, tables in shown:
        drawn.add_row(topic.name, topic.about, str(sum(len(one.lines) for one in tables)))
    _console().print(drawn)
    click.echo("headrace plan reference TOPIC shows one; --html FILE writes all of them as a page")


def print_topic(known: Catalog, topic: Topic, tables: Sequence[Table]) -> None:
    """Its tables, then the sources that they name by number."""
    console = _console()
    console.print(f"{topic.title}: {topic.about}", highlight=False)
    ids = [one for table in tables for line in table.lines for one in line.sources]
    number = {source: at for at, source in enumerate(dict.fromkeys(ids), 1)}
    for table in tables:
        _print_table(console, table, number)
    if any(line.disputed_by for table in tables for line in table.lines):
        console.print("* sources disagree; headrace catalog show ID shows how")
    if topic.name != "sources":
        console.print("Sources")
        for source, at in number.items():
            told = known.sources[source]
            console.print(visible(f"  [{at}] {told.title}, {told.date}"))


def _print_table(console: Console, table: Table, number: dict[str, int]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn
    from rich.text import Text

    room = _room(table, console.width)
    figures = sum(column.figure for column in table.columns)
    if room < len(table.columns) and figures * 2 < len(table.columns):
        _print_records(console, table, number)
        return
    drawn = Drawn(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0),
        title=f"{table.title} ({len(table.lines)})", title_justify="left",
    )  # fmt: skip
    names = max((len(line.id) + 2 for line in table.lines), default=0)
    drawn.add_column("id", overflow="fold", min_width=min(names, _NAME_COLUMNS))
    for column in table.columns[:room]:
        drawn.add_column(
            column.heading, overflow="fold", justify="right" if column.figure else "left",
            min_width=_least(table, column) if column.figure else None,
        )  # fmt: skip
    narrow = room < len(table.columns)
    drawn.add_column(
        "as of", overflow="fold", min_width=_DAY_COLUMNS,
        max_width=_DAY_COLUMNS if narrow else None,
    )  # fmt: skip
    drawn.add_column("source", overflow="fold", min_width=_SOURCE_COLUMNS)
    for line in table.lines:
        mark = " *" if line.disputed_by else ""
        cells = [
            visible(line.id) + mark,
            *(visible(one.text) for one in line.entries[:room]),
            line.as_of,
            " ".join(f"[{number[one]}]" for one in line.sources),
        ]
        drawn.add_row(*(Text(one) for one in cells))
    console.print(drawn)
    left_out = ", ".join(one.heading for one in table.columns[room:])
    if left_out:
        console.print(
            f"columns that do not fit: {left_out}; use a wider terminal, --html or --json"
        )
    for note in table.notes:
        console.print(visible(note))


def _print_records(console: Console, table: Table, number: dict[str, int]) -> None:
    """A block for each line, where long texts would not stand beside each other."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(f"\n{table.title} ({len(table.lines)})\n", style="italic")
    for line in table.lines:
        mark = " *" if line.disputed_by else ""
        said_by = " ".join(f"[{number[one]}]" for one in line.sources)
        console.print(Text(visible(f"{line.id}{mark}, {line.as_of} {said_by}"), style="bold"))
        told = [
            (column.heading, entry.text)
            for column, entry in zip(table.columns, line.entries, strict=True)
            if entry.text != DASH
        ]
        short = [f"{heading} {text}" for heading, text in told if len(text) <= _TEXT_COLUMNS]
        long = [f"{heading}: {text}" for heading, text in told if len(text) > _TEXT_COLUMNS]
        for one in (" · ".join(short), *long):
            if one:
                console.print(Padding(Text(visible(one)), (0, 0, 0, 2)))
    for note in table.notes:
        console.print(visible(note))


def _room(table: Table, width: int) -> int:
    """How many of the columns fit beside each other; one at least."""
    left = width - _NAME_COLUMNS - _DAY_COLUMNS - _SOURCE_COLUMNS - 6
    for at, column in enumerate(table.columns):
        left -= _least(table, column) + 1
        if left < 0:
            return max(1, at)
    return len(table.columns)


def _least(table: Table, column: Column) -> int:
    """Characters that a column is still read in."""
    at = table.columns.index(column)
    texts = [column.heading, *(line.entries[at].text for line in table.lines)]
    return min(max(map(len, texts)), _FIGURE_COLUMNS if column.figure else _TEXT_COLUMNS)


def print_tree(known: Catalog, tree: Decision) -> None:
    """The whole tree."""
    from headrace.cli.catalog.decision import decision_tree

    console = _console()
    ids = dict.fromkeys(fact.source for fact in tree.facts.values())
    number = {source: f"[{at}]" for at, source in enumerate(ids, 1)}
    console.print(decision_tree(tree, number))
    for source, at in number.items():
        console.print(visible(f"{at} {known.sources[source].title}, {known.sources[source].date}"))
    click.echo(
        f"walk it with --choose OPTION; headrace catalog show {tree.id} --json lists the names"
    )


def print_walk(known: Catalog, walked: Walk) -> None:
    """The answers given, then the next question or what to take, with source and date."""
    from headrace.plan.reference.walk import short

    for node, option in walked.steps:
        click.echo(visible(f"{node.question} {option.label}"))
    if walked.question is not None:
        click.echo(visible(walked.question.question))
        for at, option in enumerate(walked.question.options, 1):
            click.echo(visible(f"  {at}  {option.label} (--choose {short(option)})"))
        return
    click.echo("Take")
    for one in walked.takes:
        click.echo(visible(f"  {one.id}: {one.name} ({one.kind})"
                           + (f", {one.about}" if one.about else "")))  # fmt: skip
    click.echo(visible(f"Because {walked.because}"))
    if walked.fact is not None:
        fact, source = walked.fact, known.sources[walked.fact.source]
        if fact.note:
            click.echo(visible(fact.note))
        for dispute in fact.disputed_by:
            said = known.contradictions[dispute]
            click.echo(visible(f"Disputed {said.id} {said.subject}: {said.used} ({said.why})"))
        click.echo(visible(f"[{source.title}, {fact.as_of}, {fact.confidence.value}]"))


def ask(known: Catalog, tree: Decision, choices: Sequence[str]) -> None:
    """Walk in the terminal; "b" goes back a question, an empty line or the end of input stops."""
    from headrace.errors import CatalogError
    from headrace.plan.reference.walk import walk

    given = list(choices)
    click.echo(visible(f"{tree.name}: {tree.about}"))
    walked = walk(known, tree, given)
    while walked.question is not None:
        print_walk(known, walked)
        try:
            answer = click.prompt("answer (b back, empty to stop)", default="", show_default=False)
        except click.Abort:
            click.echo()
            return
        if not answer.strip():
            return
        if answer.strip() == "b":
            given = given[:-1]
        else:
            try:
                walk(known, tree, [*given, answer])
            except CatalogError as error:
                click.echo(visible(str(error)))
                continue
            given.append(answer)
        walked = walk(known, tree, given)
    print_walk(known, walked)


def _console() -> Console:
    import os

    from rich.console import Console

    console = Console(markup=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE_COLUMNS
    return console
