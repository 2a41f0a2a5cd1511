"""The answer: options ranked, three that differ, and what was ruled out by which rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.catalog import Catalog
from headrace.plan.quantity import Quantity
from headrace.plan.recommendation.apis import api_options
from headrace.plan.recommendation.breach import Breach, RuledOut, RuledOutBy, ruled_out_by
from headrace.plan.recommendation.commands import Command, commands_of
from headrace.plan.recommendation.models import open_models
from headrace.plan.recommendation.option import Option
from headrace.plan.recommendation.places import settings, sites
from headrace.plan.recommendation.question import Question
from headrace.plan.recommendation.ranking import Alternatives, Order, Ranked, alternatives, ranked
from headrace.plan.recommendation.self_hosted import SelfHosted
from headrace.plan.recommendation.size import PROXY
from headrace.telemetry.machine import Machine

_NEAREST = 3


@dataclass(frozen=True, kw_only=True)
class Miss:
    """An option that nearly is one. options: what to change in the command so that it is.

    remedies: of the rules broken for which there is no such option, in words.
    """

    name: str
    breaches: tuple[Breach, ...]
    options: tuple[str, ...]
    remedies: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "breaches": [
                {"rule": one.rule, "text": one.text, "excess": one.excess} for one in self.breaches
            ],
            "options": list(self.options),
            "remedies": list(self.remedies),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """ranked: options, one for each model and place. looked_at: combinations, ruled out included.

    nearest: those ruled out that missed by least; told where nothing is left.
    """

    question: Question
    ranked: tuple[Ranked, ...]
    alternatives: Alternatives
    commands: dict[str, tuple[Command, ...]]
    ruled_out: tuple[RuledOutBy, ...]
    nearest: tuple[Miss, ...]
    looked_at: int
    left: int
    notes: tuple[str, ...]

    @property
    def figures(self) -> tuple[Quantity, ...]:
        """Every figure of the options that are told, by which `plan explain` finds them."""
        told = {one.id: one for one in self._told()}
        return tuple(figure for one in told.values() for figure in one.figures)

    def _told(self) -> list[Option]:
        three = self.alternatives
        ends = [one for one in (three.cheapest, three.fastest, three.best) if one is not None]
        return [*(one.option for one in self.ranked), *ends]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        question, three = self.question, self.alternatives
        told = {one.id: one for one in self._told()}
        return {
            "question": {
                "task": question.task, "on": question.on.isoformat(),
                "prompt_tokens": question.prompt_tokens, "output_tokens": question.output_tokens,
                "context_tokens": question.context_tokens, "rate": question.rate,
                "mean_rate": question.mean_rate, "headroom": question.headroom,
                "slo": [one.text for one in question.slo],
                "budget_usd_per_month": question.budget_usd, "private": question.private,
                "edge": question.edge, "hardware": list(question.hardware),
                "models": list(question.models),
                "min_quality_parameters": question.least_parameters,
            },
            "looked_at": self.looked_at,
            "left": self.left,
            "ranked": [
                {"place": one.place, "option": one.option.id, "score": one.score.as_dict()}
                for one in self.ranked
            ],
            "alternatives": {
                name: None if one is None else one.id
                for name, one in (
                    ("cheapest", three.cheapest), ("fastest", three.fastest), ("best", three.best)
                )
            },
            "options": [
                {**one.as_dict(), "commands": [each.as_dict() for each in self.commands[one.id]]}
                for one in told.values()
            ],
            "ruled_out": [one.as_dict() for one in self.ruled_out],
            "nearest": [one.as_dict() for one in self.nearest],
            "quantities": [one.as_dict() for one in self.figures],
            "notes": list(self.notes),
        }  # fmt: skip


def recommend(
    catalog: Catalog,
    question: Question,
    *,
    machine: Machine | None = None,
    order: Order = "balance",
    most: int = 10,
) -> Recommendation:
    """What to run. machine: what was measured of this one; most: options that are ranked.

    Raises CatalogError for names that are none.
    """
    models, out = open_models(catalog, question)
    places, unfit = sites(catalog, question, machine is not None)
    able, cannot = settings(catalog, question, places)
    hosted = SelfHosted(catalog, question, machine)
    for model in models:
        for setting in able:
            hosted.look_at(model, setting)
    sold, unsold = api_options(catalog, question)
    options = [*hosted.options, *sold]
    ruled_out = [*out, *unfit, *cannot, *hosted.out, *unsold]
    three = alternatives(options)
    best = ranked(catalog, options, order)[:most]
    best = tuple(replace(one, option=hosted.told(one.option)) for one in best)
    three = Alternatives(
        **{
            name: None if one is None else hosted.told(one)
            for name, one in (
                ("cheapest", three.cheapest), ("fastest", three.fastest), ("best", three.best)
            )
        }
    )  # fmt: skip
    ends = [one for one in (three.cheapest, three.fastest, three.best) if one is not None]
    told = {one.id: one for one in (*(each.option for each in best), *ends)}
    return Recommendation(
        question=question,
        ranked=best,
        alternatives=three,
        commands={id: commands_of(catalog, question, one) for id, one in told.items()},
        ruled_out=ruled_out_by(catalog, ruled_out),
        nearest=() if options else _nearest(catalog, ruled_out),
        looked_at=len(options) + len(ruled_out),
        left=len(options),
        notes=(*question.assumptions, f"size is {PROXY}"),
    )


def _nearest(catalog: Catalog, ruled_out: list[RuledOut]) -> tuple[Miss, ...]:
    """By the least excess, those first for which changes of the command do; one of each model.

    What does not fit was not looked at further, so nobody knows what else it would break.
    """
    by_degree = [one for one in ruled_out if one.excess < float("inf")]
    found: dict[str, RuledOut] = {}

    def unsure(one: RuledOut) -> bool:
        return not all(each.option for each in one.breaches)

    for one in sorted(by_degree, key=lambda one: (unsure(one), one.excess)):
        found.setdefault(one.model or one.name, one)
    return tuple(
        Miss(
            name=one.name, breaches=one.breaches,
            options=tuple(dict.fromkeys(each.option for each in one.breaches if each.option)),
            remedies=tuple(
                catalog.rules[each.rule].remedy for each in one.breaches if not each.option
            ),
        )
        for one in list(found.values())[:_NEAREST]
    )  # fmt: skip
