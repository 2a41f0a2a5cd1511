"""Which models are looked at, and the rules that rule a model out whatever it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.catalog import Catalog
from headrace.catalog.rows import Model
from headrace.errors import ConfigError
from headrace.plan.model_shape import ModelShape, shape_of_catalog
from headrace.plan.recommendation.breach import Breach, RuledOut
from headrace.plan.recommendation.question import Question
from headrace.plan.recommendation.size import quality_of


class Shaped(NamedTuple):
    """A model that can be planned with."""

    row: Model
    shape: ModelShape


def open_models(catalog: Catalog, question: Question) -> tuple[list[Shaped], list[RuledOut]]:
    """Models with open weights that no rule on models rules out.

    Raises CatalogError for a name that is none.
    """
    found, out = [], []
    for row in _asked(catalog, question):
        if not row.open_weights:
            continue
        breaches = tuple(model_breaches(catalog, question, row))
        shape = None
        try:
            shape = shape_of_catalog(row)
        except ConfigError as error:
            told = str(error).partition(":")[0]
            breaches = (*breaches, Breach(rule="rule-shapes", text=told))
        if breaches or shape is None:
            out.append(RuledOut(name=row.name, breaches=breaches))
        else:
            found.append(Shaped(row, shape))
    return found, out


def _asked(catalog: Catalog, question: Question) -> list[Model]:
    if question.models:
        return [catalog.models[name] for name in question.models]
    return list(catalog.models)


def model_breaches(catalog: Catalog, question: Question, row: Model) -> Iterator[Breach]:
    """Hard rules that the model breaks: age, licence, context, size."""
    if not question.models:
        yield from _age(catalog, question, row)
    forbidden = catalog.rules["rule-licence"].values
    if row.licence in forbidden and not question.any_licence:
        yield Breach(rule="rule-licence", text=f"licence {row.licence}", option="--any-licence")
    longest = max(row.context_tokens or 0, row.extended_context_tokens or 0)
    if longest and question.context_tokens > longest:
        over = question.context_tokens - longest
        yield Breach(
            rule="rule-context",
            text=f"made for {longest:,} tokens, {over:,} fewer than {question.context_tokens:,}",
            excess=over / longest,
            option=f"--context {longest}",
        )
    if question.least_parameters is not None:
        size = quality_of(row).parameters
        if size is None:
            yield Breach(rule="rule-size-unstated", text="its parameters are not published")
        elif size < question.least_parameters:
            yield Breach(
                rule="rule-size",
                text=f"{size / 1e9:.3g} B by the proxy, below {question.least_parameters / 1e9:g}",
                excess=question.least_parameters / size - 1,
                option=f"--min-quality {size:.0f}",
            )


def _age(catalog: Catalog, question: Question, row: Model) -> Iterator[Breach]:
    days = catalog.rules["rule-age"].limits["age"].high or 0.0
    if row.released is None:
        yield Breach(rule="rule-age", text="its date is not stated", option=f"--model {row.id}")
        return
    age = (question.on - row.released).days
    if age > days:
        yield Breach(
            rule="rule-age",
            text=f"of {row.released}, {age - days:,.0f} days over the limit of {days:,.0f}",
            excess=age / days - 1,
            option=f"--model {row.id}",
        )
