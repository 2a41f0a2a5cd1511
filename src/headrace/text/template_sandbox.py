"""The Jinja environment chat templates run in: that of transformers, with bounded work.

Same dialect: immutable sandbox, trimmed blocks, `break` and `continue`, `{% generation %}`,
`raise_exception`, `strftime_now`, a `tojson` that does not escape HTML. Beside it every loop turn,
call, filter, test, comparison and operator that can grow or walk a value is charged to the Budget
of the rendering (template_limits), before the work where it could be large: loops and `~` by
rewriting the template's syntax tree, the rest through the sandbox's own hooks. What a later Jinja
adds is left out until its cost is known here.
Importing this imports jinja2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from headrace.errors import TemplateError
from headrace.text.template_limits import Budget, RenderLimits
from headrace.text.template_rewrite import CHARGE, COUNT_TURNS, JOIN, rewrite
from headrace.text.template_work import (
    ACCOUNTED_FILTERS,
    charge_filter,
    charge_method,
    charge_operator,
)

# Has a space, so that no template can name it.
BUDGET = "render budget"


class SandboxEnvironment(ImmutableSandboxedEnvironment):
    """A compiler of chat templates. Render with the variable BUDGET set to a fresh Budget."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, clock: Callable[[], datetime], limits: RenderLimits) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
            finalize=_charge_value,
        )
        self.filters["tojson"] = _tojson
        # Nothing is escaped here, and what `safe` marks would escape the texts it is joined to:
        # Mistral's templates write &#34; for the quotes around a tool call in transformers.
        self.filters["safe"] = str
        self.filters = {
            name: _charged(name, cast(Callable[..., Any], function), charge_filter)
            for name, function in self.filters.items()
            if name in ACCOUNTED_FILTERS
        }
        self.filters |= {COUNT_TURNS: _count_turns, JOIN: _join, CHARGE: _charge_value}
        self.tests = {
            name: _charged(name, cast(Callable[..., Any], function), _charge_test)
            for name, function in self.tests.items()
            if name in ACCOUNTED_TESTS
        }
        self.globals = {
            name: value for name, value in self.globals.items() if name in ACCOUNTED_GLOBALS
        } | {
            "raise_exception": _raise_exception,
            "strftime_now": lambda format: clock().strftime(format),
            "dict": lambda *args, **kwargs: dict(*args, **kwargs),
            "namespace": _Namespace,
        }
        self.concat = lambda parts: _bounded_join(parts, limits)  # type: ignore[method-assign]

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        return super()._generate(rewrite(source, self), name, filename, defer_init)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        charge_operator(budget_of(context), operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = budget_of(context)
        budget.charge()
        # str.format arrives wrapped by the sandbox.
        method = getattr(function, "__wrapped__", function)
        if isinstance(function, LoopContext):
            for arg in args:
                budget.charge_value(arg)
        elif getattr(method, "__self__", None) is not None:
            args = charge_method(budget, method, args, kwargs)
        result = super().call(context, function, *args, **kwargs)
        if isinstance(result, range):
            budget.charge_items(len(result))
        else:
            budget.charge_value(result)
        return result


def budget_of(context: Context) -> Budget:
    """The budget of the rendering a context belongs to."""
    budget: Budget = context.parent[BUDGET]
    return budget


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks what a model wrote; its body is printed."""

    tags = {"generation"}  # noqa: RUF012 (an instance attribute in the base class)

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(lineno)


class _Namespace(Namespace):
    """The `namespace(...)` of templates, without names that begin with an underscore, which reach
    into objects.
    """

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _check_public(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: str) -> None:
    if name.startswith("_"):
        raise TemplateError(f"the chat template sets {name!r} on a namespace; drop the underscore")


class _Turns:
    """An iterable whose every item is one step."""

    def __init__(self, iterable: Any, charge: Callable[[], None]) -> None:
        self._iterable = iterable
        self._charge = charge

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            self._charge()
            yield item

    def __len__(self) -> int:
        return len(self._iterable)


@jinja2.pass_context
def _count_turns(context: Context, iterable: Any) -> _Turns:
    """What a `for` loops over."""
    return _Turns(iterable, budget_of(context).charge)


@jinja2.pass_context
def _join(context: Context, parts: tuple[Any, ...]) -> str:
    """The `~` operator."""
    budget_of(context).charge_tree(parts)
    return "".join(map(str, parts))


@jinja2.pass_context
def _charge_value(context: Context, value: Any) -> Any:
    """Charge for printing or comparing a value, or for having made it."""
    budget_of(context).charge_tree(value)
    return value


def _bounded_join(parts: Iterable[str], limits: RenderLimits) -> str:
    pieces = list(parts)
    length = sum(map(len, pieces))
    if length > limits.max_chars:
        raise TemplateError(
            f"the chat template makes a text of {length} characters; at most {limits.max_chars} "
            "are allowed"
        )
    return "".join(pieces)


def _charged(name: str, function: Callable[..., Any], charge: Callable[..., Any]) -> Any:
    """A filter or test that charges before it works; takes what Jinja passes first itself."""
    passed = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    @jinja2.pass_context
    def charged(context: Context, *args: Any, **kwargs: Any) -> Any:
        args = charge(budget_of(context), name, args, kwargs)
        if passed == "context":
            return function(context, *args, **kwargs)
        if passed == "eval_context":
            return function(context.eval_ctx, *args, **kwargs)
        if passed == "environment":
            return function(context.environment, *args, **kwargs)
        return function(*args, **kwargs)

    return charged


def _charge_test(
    budget: Budget, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    for value in args:
        if name in _COMPARING_TESTS:
            budget.charge_tree(value)
        else:
            budget.charge()
    return args


# They walk what they are given.
_COMPARING_TESTS = frozenset(
    ("in", "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge", "<", "lt")
).union(("lessthan", "<=", "le"))
ACCOUNTED_TESTS = _COMPARING_TESTS.union(
    ("boolean", "callable", "defined", "divisibleby", "escaped", "even", "false", "filter"),
    ("float", "integer", "iterable", "lower", "mapping", "none", "number", "odd", "sameas"),
    ("sequence", "string", "test", "true", "undefined", "upper"),
)
"""Tests whose cost is known here: those that compare walk their values, the others look once."""

ACCOUNTED_GLOBALS = frozenset(("cycler", "dict", "joiner", "namespace", "range"))
"""Jinja's globals whose cost is known here. lipsum is left out: it makes text out of nothing."""


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
