"""What a chat template expects of its messages, read off its syntax tree.

Templates differ in what they take: content as a text or as a list of parts, None or "" where there
is none, tool-call arguments as an object or as JSON text. Nothing says which; how the template uses
the values does.
Importing this imports jinja2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import nodes

# Filters that take a list of parts apart.
_PART_FILTERS = frozenset(("selectattr", "rejectattr", "map", "select", "reject"))
_OBJECT_FILTERS = frozenset(("tojson", "items", "dictsort"))
_TEXT_FILTERS = frozenset(("trim", "string", "replace", "lower", "upper", "indent", "safe", "e"))
_TEXT_METHODS = frozenset(
    ("strip", "lstrip", "rstrip", "split", "rsplit", "startswith", "endswith", "replace")
)
_TYPE_TESTS = frozenset(("string", "iterable", "sequence", "mapping"))


@dataclass(frozen=True)
class TemplateTraits:
    """The traits of a chat template that decide how messages are passed to it."""

    takes_parts: bool
    """Content may be a list of parts."""
    takes_text: bool
    """It may be a text (both may hold)."""
    tests_none: bool
    """Distinguishes content that is null from empty content."""
    arguments_as_text: bool
    """Prints a tool call's arguments as they are."""
    knows_developer: bool
    """Names the role "developer"."""
    looked_for: frozenset[str]
    """Texts that it compares with, or cuts or searches messages by."""


def traits_of(template: nodes.Template, source: str) -> TemplateTraits:
    """Traits of a parsed template and its source text."""
    uses = list(_uses(template, "content"))
    loops = any(_is_loop(use) for use in uses)
    tells_apart = any(_is_test(use, _TYPE_TESTS) for use in uses)
    as_text = any(_is_text(use) for use in uses)
    return TemplateTraits(
        takes_parts=loops and (tells_apart or not as_text),
        takes_text=tells_apart or as_text or not loops,
        tests_none=any(_is_test(use, ("none",)) or _compares_none(use) for use in uses),
        arguments_as_text=_as_text(list(_uses(template, "arguments"))),
        knows_developer="developer" in source,
        looked_for=_looked_for(template),
    )


def num_nodes(template: nodes.Template) -> int:
    """How many nodes a syntax tree has."""
    count = 0
    pending: list[nodes.Node] = [template]
    while pending:
        count += 1
        pending += pending.pop().iter_child_nodes()
    return count


def _looked_for(template: nodes.Template) -> frozenset[str]:
    """Texts in comparisons, and those that methods, filters and tests are given; a name stands for
    all that it is ever set to."""
    places: list[nodes.Node] = [*template.find_all(nodes.Compare), *template.find_all(nodes.Test)]
    for method in template.find_all(nodes.Call):
        if isinstance(method.node, nodes.Getattr):
            places += [*method.args, *(keyword.value for keyword in method.kwargs)]
    for step in template.find_all(nodes.Filter):
        places += [*step.args, *(pair.value for pair in step.kwargs)]
    names = {
        name.name for place in places for name in _with_inner(place) if isinstance(name, nodes.Name)
    }
    places += [value for name, value in _namings(template) if name in names]
    places += [loop.iter for loop in template.find_all(nodes.For) if _names_set(loop) & names]
    return frozenset(
        const.value
        for place in places
        for const in _with_inner(place)
        if isinstance(const, nodes.Const) and isinstance(const.value, str)
    )


def _names_set(loop: nodes.For) -> set[str]:
    """Names that a loop gives a value each turn."""
    return {name.name for name in _with_inner(loop.target) if isinstance(name, nodes.Name)}


def _with_inner(node: nodes.Node) -> list[nodes.Node]:
    return [node, *node.find_all(nodes.Node)]


@dataclass(frozen=True)
class _Use:
    """One place where a value is used: the node that uses it, and it as that node's child."""

    user: nodes.Node
    value: nodes.Node


def _uses(template: nodes.Template, key: str) -> Iterator[_Use]:
    """Where `x.key`, `x['key']`, `x.get('key')`, or a name set from one of them, is used."""
    names = _names_for(template, key)
    pending: list[nodes.Node] = [template]
    while pending:
        node = pending.pop()
        for child in node.iter_child_nodes():
            pending.append(child)
            if _means(child, key, names):
                yield _Use(node, child)


def _means(node: nodes.Node, key: str, names: set[str]) -> bool:
    if isinstance(node, nodes.Name):
        return node.ctx == "load" and node.name in names
    if isinstance(node, nodes.Getattr):
        return node.attr == key
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == key
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr) and node.args:
        first = node.args[0]
        return node.node.attr == "get" and isinstance(first, nodes.Const) and first.value == key
    return False


def _names_for(template: nodes.Template, key: str) -> set[str]:
    """Names that are set to such a value, or are a macro's parameter for one."""
    named = list(_namings(template))
    names = {name for name, value in named if _means(value, key, set())}
    followers: dict[str, list[str]] = {}
    for name, value in named:
        if isinstance(value, nodes.Name):
            followers.setdefault(value.name, []).append(name)
    pending = list(names)
    while pending:
        new = set(followers.get(pending.pop(), ())) - names
        names |= new
        pending += new
    return names


def _namings(template: nodes.Template) -> Iterator[tuple[str, nodes.Node]]:
    """Names and the values they are given, by `set` or as a macro's parameter."""
    for assign in template.find_all(nodes.Assign):
        if isinstance(assign.target, nodes.Name):
            yield assign.target.name, assign.node
    macros = {macro.name: macro for macro in template.find_all(nodes.Macro)}
    for call in template.find_all(nodes.Call):
        macro = macros.get(call.node.name) if isinstance(call.node, nodes.Name) else None
        if macro is not None:
            for parameter, value in zip(macro.args, call.args, strict=False):
                yield parameter.name, value


def _is_loop(use: _Use) -> bool:
    if isinstance(use.user, nodes.For):
        return use.user.iter is use.value
    return isinstance(use.user, nodes.Filter) and use.user.name in _PART_FILTERS


def _is_text(use: _Use) -> bool:
    user = use.user
    if isinstance(user, nodes.Filter):
        return user.name in _TEXT_FILTERS
    if isinstance(user, nodes.Getattr):
        return user.attr in _TEXT_METHODS
    return isinstance(user, (nodes.Output, nodes.Add, nodes.Concat))


def _is_test(use: _Use, names: tuple[str, ...] | frozenset[str]) -> bool:
    return isinstance(use.user, nodes.Test) and use.user.name in names


def _compares_none(use: _Use) -> bool:
    return isinstance(use.user, nodes.Compare) and any(
        isinstance(operand.expr, nodes.Const) and operand.expr.value is None
        for operand in use.user.ops
    )


def _as_text(uses: list[_Use]) -> bool:
    """Printed or joined as it is, and nowhere taken as an object."""
    taken_as_object = any(
        _is_loop(use)
        or _is_test(use, _TYPE_TESTS)
        or (isinstance(use.user, nodes.Filter) and use.user.name in _OBJECT_FILTERS)
        or (isinstance(use.user, nodes.Getattr) and use.user.attr in ("items", "keys"))
        for use in uses
    )
    return any(_is_text(use) for use in uses) and not taken_as_object
