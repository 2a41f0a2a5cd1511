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
    """A condition on what is known of a plan, written as `task=code|agent`."""

    field: str
    """What it is about."""
    values: tuple[str, ...]
    """Values of which it is one."""

    def holds(self, answers: Mapping[str, str]) -> bool:
        """Whether `answers` has the field with one of the values."""
        return answers.get(self.field) in self.values


class Option(NamedTuple):
    """An answer to the question of a node."""

    id: str
    """Written "node.option"."""
    label: str
    """The answer in words."""
    leads_to: str | None
    """The next node; None at an end."""
    takes: tuple[str, ...]
    """Ids of catalog rows to take, at an end."""
    because: str
    """The reason."""
    when: tuple[Condition, ...]
    """Conditions, all of which must hold for a program to give this answer; without any, only
    people can give it.
    """
    disputed_by: tuple[str, ...]
    """Ids of contradictions about what it takes."""

    def holds(self, answers: Mapping[str, str]) -> bool:
        """Whether it is the answer, as far as a program can know."""
        return bool(self.when) and all(condition.holds(answers) for condition in self.when)


class Node(NamedTuple):
    """A question with its answers, in their order."""

    id: str
    question: str
    options: tuple[Option, ...]


class Decision(Row, frozen=True, kw_only=True):
    """A decision tree, written flat. An option leads to a node or takes rows, never both."""

    topic: Topic
    about: str
    """What is decided."""
    nodes: dict[str, str] = msgspec.field(default_factory=dict)
    """Questions by node, in the order in which they come."""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    """Answers by "node.option"."""
    leads_to: dict[str, str] = msgspec.field(default_factory=dict)
    """The next node, by option."""
    takes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Ids of rows of any kind, by option."""
    because: dict[str, str] = msgspec.field(default_factory=dict)
    """Why it takes those, by option."""
    when: dict[str, str] = msgspec.field(default_factory=dict)
    """Conditions under which a program gives the answer, as "task=code|agent, private=yes", by
    option; they are this project's reading of the label.
    """

    def __post_init__(self) -> None:
        """Raises CatalogError where it is not a tree."""
        for fault in _faults(self):
            raise CatalogError(f"decision {self.id!r}: {fault}")

    @property
    def tree(self) -> dict[str, Node]:
        """Nodes by name, in the order of the file."""
        return {
            node: Node(
                node,
                question,
                tuple(_option(self, name) for name in self.options if _node(name) == node),
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
        return tuple(path for path in self.paths if all(option.holds(answers) for option in path))


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


def _conditions(text: str) -> tuple[Condition, ...]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        field, equals, values = part.partition("=")
        if not (field and equals and values):
            raise CatalogError(f'condition {part!r}: write it as "task=code|agent"')
        found.append(Condition(field.strip(), tuple(each.strip() for each in values.split("|"))))
    return tuple(found)


def _faults(decision: Decision) -> Iterator[str]:
    """What keeps it from being a tree in which every way ends."""
    if not decision.nodes:
        yield 'has no node; write nodes.start = "…?"'
    options, nodes = decision.options, decision.nodes
    for name in options:
        if _node(name) not in nodes or not name.partition(".")[2]:
            yield f"option {name!r} belongs to no node; the nodes are: {', '.join(nodes)}"
        if (name in decision.leads_to) == (name in decision.takes):
            yield f"option {name!r} needs exactly one of leads_to and takes"
        if name in decision.takes and name not in decision.because:
            yield f"option {name!r} ends without a reason; write because.{name!r}"
        try:
            _conditions(decision.when.get(name, ""))
        except CatalogError as error:
            yield f"when {name!r}: {error}"
    for field in ("leads_to", "takes", "because", "when"):
        for name in getattr(decision, field):
            if name not in options:
                yield f"{field} {name!r} belongs to no option"
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
