"""Rewrites a chat template's syntax tree so that loops, `~`, slices and comparisons are charged.

These are the places where Jinja compiles straight to Python and the sandbox has no hook.
Importing this imports jinja2.
"""

from __future__ import annotations

from typing import Any, cast

from jinja2 import Environment, nodes
from jinja2.visitor import NodeTransformer

# Names of internal filters; "%" keeps templates from naming them.
COUNT_TURNS = "%count turns"
JOIN = "%join"
CHARGE = "%charge"


def rewrite(template: nodes.Template, environment: Environment) -> nodes.Template:
    """The same template with internal filters around what has to be charged."""
    _Rewriter().visit(template)
    return cast(nodes.Template, template.set_environment(environment))


def _filtered(name: str, node: nodes.Expr) -> nodes.Filter:
    filtered = nodes.Filter(node, name, [], [], None, None)
    filtered.set_lineno(node.lineno)
    return filtered


def _charged(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _filtered(CHARGE, node)


class _Rewriter(NodeTransformer):
    def visit_For(self, node: nodes.For, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        node.iter = cast(nodes.Expr, _filtered(COUNT_TURNS, cast(nodes.Expr, node.iter)))
        return node

    def visit_Concat(self, node: nodes.Concat, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        parts = nodes.Tuple(node.nodes, "load")
        parts.set_lineno(node.lineno)
        return _filtered(JOIN, parts)

    def visit_Getitem(self, node: nodes.Getitem, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _charged(node)
        node.arg = _charged(node.arg)
        return node

    def visit_Compare(self, node: nodes.Compare, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _charged(node.expr)
        for operand in node.ops:
            operand.expr = _charged(operand.expr)
        return node

    def visit_Pair(self, node: nodes.Pair, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        node.key = _charged(node.key)
        return node
