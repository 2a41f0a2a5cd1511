"""A decision tree as `headrace catalog show` prints it: questions, answers, rows to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.tree import Tree

    from headrace.catalog.rows import Decision
    from headrace.catalog.rows.decision import Node, Option


def decision_tree(row: Decision, number: Mapping[str, str]) -> Tree:
    """`row` from its root down. number: what stands for a source, by its id."""
    from rich.text import Text
    from rich.tree import Tree

    nodes = row.tree
    tree = Tree(Text(visible(f"{row.about} ({row.topic})")))

    def grow(branch: Tree, node: Node) -> None:
        below = branch.add(Text(visible(node.question), style="bold"))
        for option in node.options:
            if option.leads_to is None:
                below.add(Text(visible(_end(row, option, number))))
            else:
                grow(below.add(Text(visible(option.label))), nodes[option.leads_to])

    grow(tree, row.root)
    return tree


def _end(row: Decision, option: Option, number: Mapping[str, str]) -> str:
    fact = row.fact(f"takes.{option.id}")
    disputed = f", disputed: {', '.join(option.disputed_by)}" if option.disputed_by else ""
    return (
        f"{option.label}: {', '.join(option.takes)} ({option.because}) "
        f"{number[fact.source]} {fact.as_of.isoformat()}{disputed}"
    )
