"""A walk down a decision tree: the answers given, and the question or the rows they lead to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.catalog import Catalog
from headrace.catalog.fact import Fact
from headrace.catalog.names import near, plain
from headrace.catalog.rows import Decision
from headrace.catalog.rows.decision import Node, Option
from headrace.errors import CatalogError

# Fields that say in a line what a row is for, by the kinds that have them.
_ABOUT = ("best_for", "does", "rule", "quality", "method")


@dataclass(frozen=True, slots=True)
class Taken:
    """A row that a tree says to take. about: what it is for or does; empty where nobody says it."""

    kind: str
    id: str
    name: str
    about: str


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk through a decision tree."""

    tree: Decision
    steps: tuple[tuple[Node, Option], ...]
    """Questions with the answers given."""
    question: Node | None
    """The next question; None at an end."""
    takes: tuple[Taken, ...] = ()
    """The rows to take there."""
    because: str = ""
    """Why."""
    fact: Fact | None = None
    """What is behind that; with source and date."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "tree": self.tree.id,
            "name": self.tree.name,
            "about": self.tree.about,
            "steps": [
                {"question": node.question, "option": short(option), "answer": option.label}
                for node, option in self.steps
            ],
            "question": None if self.question is None else self.question.question,
            "options": []
            if self.question is None
            else [{"option": short(one), "label": one.label} for one in self.question.options],
            "takes": [{"kind": one.kind, "id": one.id, "name": one.name, "about": one.about}
                      for one in self.takes],
            "because": self.because,
            "fact": None if self.fact is None else msgspec.to_builtins(self.fact),
        }  # fmt: skip


def walk(known: Catalog, tree: Decision, choices: Iterable[str]) -> Walk:
    """Down from the root by the options chosen.

    choices: in order, each the option's name ("production"), its full id ("app.production"), its
    label or its number from 1. Raises CatalogError where one is of no option, or after the end.
    """
    nodes = tree.tree
    steps: list[tuple[Node, Option]] = []
    here: Node | None = tree.root
    for choice in choices:
        if here is None:
            raise CatalogError(
                f"choice {choice!r} is one too many; {tree.id} ends with {steps[-1][1].label!r}"
            )
        option = option_named(here, choice)
        steps.append((here, option))
        here = None if option.leads_to is None else nodes[option.leads_to]
    if here is not None or not steps:
        return Walk(tree, tuple(steps), here)
    end = steps[-1][1]
    return Walk(
        tree,
        tuple(steps),
        None,
        tuple(taken(known, one) for one in end.takes),
        end.because,
        tree.fact(f"takes.{end.id}"),
    )


def taken(known: Catalog, name: str) -> Taken:
    """The row of an id, as an end of a tree names it."""
    kind, row = known.find(name)
    said = (getattr(row, field, None) for field in _ABOUT)
    return Taken(kind, row.id, row.name, next((one for one in said if isinstance(one, str)), ""))


def short(option: Option) -> str:
    """The option's name within its node."""
    return option.id.partition(".")[2]


def option_named(node: Node, choice: str) -> Option:
    """By name, id, label or number; raises CatalogError with those that there are."""
    if choice.isdecimal() and 1 <= int(choice) <= len(node.options):
        return node.options[int(choice) - 1]
    for option in node.options:
        if plain(choice) in {plain(short(option)), plain(option.id), plain(option.label)}:
            return option
    names = [short(option) for option in node.options]
    nearest = near(choice, names, 1)
    meant = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise CatalogError(
        f"{choice!r} is not an answer to {node.question!r}; {meant}there are: {', '.join(names)}"
    )
