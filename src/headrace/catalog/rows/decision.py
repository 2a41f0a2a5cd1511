"""Decision trees: questions, answers to them, and the rows to take where an answer ends.

A tree is written flat, so that each answer is a fact with source, date and disputes, and people can
override one answer by its name: `nodes` are questions by the name of the node, the first of them
asked first; all else is by "node.option". `Decision.root` and `Decision.tree` give it as a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from headrace.catalog.rows.row import Row
from headrace.errors import CatalogError

Topic = Literal["runtime", "gateway", "quantization", "hardware", "model", "hosting"]


class Condition(NamedTuple):
    """One thing that is known of a plan, as `task=code|agent` is written.

    field: what it is about. values: of which it is one.
    """

    field: str
    values: tuple[str, ...]

    def holds(self, answers: Mapping[str, str]) -> bool:
        """Whether `answers` has the field with one of the values."""
        return answers.get(self.field) in self.values


class Option(NamedTuple):
    """One answer to the question of a node.

    id: "node.option". label: the answer in words. leads_to: the node asked next; None at an end.
    takes: ids of catalog rows to take, where it ends. because: the reason. when: conditions, all of
    which must hold for a program to give this answer; without any, only people can give it.
    disputed_by: ids of contradictions about what it takes.
    """

    id: str
    label: str
    leads_to: str | None
    takes: tuple[str, ...]
    because: str
    when: tuple[Condition, ...]
    disputed_by: tuple[str, ...]

    def holds(self, answers: Mapping[str, str]) -> bool:
        """Whether it is the answer, as far as a program can know."""
        return bool(self.when) and all(one.holds(answers) for one in self.when)


class Node(NamedTuple):
    """One question with its answers, in their order."""

    id: str
    question: str
    options: tuple[Option, ...]


class Decision(Row, frozen=True, kw_only=True):
    """One decision tree.

    about: what is decided. nodes: questions by node, the first asked first. options: answers by
    "node.option". leads_to: the next node; takes: ids of rows, of any kind; an option has one of
    the two. because: why it takes those. when: conditions under which a program gives the answer,
    as "task=code|agent, private=yes"; these are this project's reading of the label.
    """

    topic: Topic
    about: str
    nodes: dict[str, str] = msgspec.field(default_factory=dict)
    options: dict[str, str] = msgspec.field(default_factory=dict)
    leads_to: dict[str, str] = msgspec.field(default_factory=dict)
    takes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    because: dict[str, str] = msgspec.field(default_factory=dict)
    when: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises CatalogError where it is no tree."""
        for fault in _faults(self):
            raise CatalogError(f"decision {self.id!r}: {fault}")

    @property
    def tree(self) -> dict[str, Node]:
        """Nodes by name, in the order of the file."""
        return {
            node: Node(
                node,
                question,
                tuple(_option(self, one) for one in self.options if _node(one) == node),
            )
            for node, question in self.nodes.items()
        }

    @property
    def root(self) -> Node:
        """The node that is asked first."""
        return next(iter(self.tree.values()))

    @property
    def paths(self) -> tuple[tuple[Option, ...], ...]:
        """Every way from the root to an end, as the options taken."""
        return tuple(_paths(self.tree, self.root.id, ()))

    def ends(self, answers: Mapping[str, str]) -> tuple[tuple[Option, ...], ...]:
        """The ways on which every answer is one that `answers` gives; none where nothing is known.

        answers: by field of the conditions, as {"task": "code"}.
        """
        return tuple(path for path in self.paths if all(one.holds(answers) for one in path))


def _node(option: str) -> str:
    return option.partition(".")[0]


def _option(decision: Decision, name: str) -> Option:
    fact = decision.facts.get(f"takes.{name}")
    return Option(
        id=name,
        label=decision.options[name],
        leads_to=decision.leads_to.get(name),
        takes=decision.takes.get(name, ()),
        because=decision.because.get(name, ""),
        when=_conditions(decision.when.get(name, "")),
        disputed_by=() if fact is None else fact.disputed_by,
    )


def _paths(
    tree: Mapping[str, Node], node: str, taken: tuple[Option, ...]
) -> Iterator[tuple[Option, ...]]:
    for option in tree[node].options:
        if option.leads_to is None:
            yield (*taken, option)
        else:
            yield from _paths(tree, option.leads_to, (*taken, option))


def _conditions(said: str) -> tuple[Condition, ...]:
    found = []
    for one in filter(None, (part.strip() for part in said.split(","))):
        field, equals, values = one.partition("=")
        if not (field and equals and values):
            raise CatalogError(f'condition {one!r}: write it as "task=code|agent"')
        found.append(Condition(field.strip(), tuple(each.strip() for each in values.split("|"))))
    return tuple(found)


def _faults(decision: Decision) -> Iterator[str]:
    """What keeps it from being a tree in which every way ends."""
    if not decision.nodes:
        yield 'has no node; write nodes.start = "…?"'
    options, nodes = decision.options, decision.nodes
    for name in options:
        if _node(name) not in nodes or not name.partition(".")[2]:
            yield f"option {name!r} is of no node; there are: {', '.join(nodes)}"
        if (name in decision.leads_to) == (name in decision.takes):
            yield f"option {name!r} has one of leads_to and takes"
        if name in decision.takes and name not in decision.because:
            yield f"option {name!r} ends and has no reason; write because.{name!r}"
        try:
            _conditions(decision.when.get(name, ""))
        except CatalogError as error:
            yield f"when {name!r}: {error}"
    for field in ("leads_to", "takes", "because", "when"):
        for name in getattr(decision, field):
            if name not in options:
                yield f"{field} {name!r} is of no option"
    led_to = list(decision.leads_to.values())
    root = next(iter(nodes), "")
    for node in nodes:
        if not any(_node(name) == node for name in options):
            yield f"node {node!r} has no option"
        if led_to.count(node) != (node != root):
            yield (
                f"node {node!r} is led to by {led_to.count(node)} options; the first by none, "
                "others by one"
            )
    for node in led_to:
        if node not in nodes:
            yield f"leads to {node!r}, which does not exist; the nodes are: {', '.join(nodes)}"
    # Each node has one way in; what the root does not reach therefore goes round in a circle.
    reached, waiting = {root}, [root]
    while waiting:
        here = waiting.pop()
        for name, target in decision.leads_to.items():
            if _node(name) == here and target not in reached:
                reached.add(target)
                waiting.append(target)
    for node in nodes:
        if node not in reached:
            yield f"node {node!r} is not reached from {root!r}"
