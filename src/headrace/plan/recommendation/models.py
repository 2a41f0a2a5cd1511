"""Which models are looked at, and the rules that rule a model out whatever it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.catalog import Catalog
from headrace.catalog.rows import Model
from headrace.errors import ConfigError
from headrace.plan.model.model_shape import ModelShape, shape_of_catalog
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
            out.append(RuledOut(name=row.name, breaches=breaches, model=row.id))
        else:
            found.append(Shaped(row, shape))
    return found, out


def _asked(catalog: Catalog, question: Question) -> list[Model]:
    if question.models:
        return [catalog.models[name] for name in question.models]
    return list(catalog.models)


def model_breaches(catalog: Catalog, question: Question, row: Model) -> Iterator[Breach]:
    """Hard rules that the model breaks: tuning, licence, context, size; age where it is hard."""
    if catalog.rules["rule-age"].strength == "hard":
        yield from _age(catalog, question, row)
    tasks = catalog.rules["rule-tuned"].values
    if row.open_weights and not row.checkpoints and question.task in tasks:
        text = "the catalog has no checkpoint of it that is tuned to follow instructions"
        yield Breach(rule="rule-tuned", text=text)
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
    size = quality_of(row).parameters
    usual = question.usual_least_parameters
    if usual is not None and size is not None and size < usual:
        yield Breach(
            rule="rule-usual-size",
            text=f"{size / 1e9:.3g} B by the proxy, below the {usual / 1e9:g} taken for "
            f"{question.task}",
            excess=usual / size - 1,
            option=f"--min-quality {size:.0f}",
        )
    if question.least_parameters is not None:
        if size is None:
            yield Breach(rule="rule-size-unstated", text="its parameters are not published")
        elif size < question.least_parameters:
            yield Breach(
                rule="rule-size",
                text=f"{size / 1e9:.3g} B by the proxy, below {question.least_parameters / 1e9:g}",
                excess=question.least_parameters / size - 1,
                option=f"--min-quality {size:.0f}",
            )


def model_marks(catalog: Catalog, question: Question, row: Model) -> Iterator[Breach]:
    """Soft rules that the model breaks: age where it is soft, and other work it is made for."""
    if catalog.rules["rule-age"].strength == "soft":
        yield from _age(catalog, question, row)
    if row.made_for and question.task not in row.made_for:
        yield Breach(rule="rule-made-for", text=f"made for {', '.join(row.made_for)}")


def _age(catalog: Catalog, question: Question, row: Model) -> Iterator[Breach]:
    if question.models:  # who names a model wants it
        return
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
