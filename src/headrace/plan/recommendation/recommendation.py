"""The answer: options ranked, three that differ, and what was ruled out by which rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.catalog import Catalog
from headrace.plan.calibration.stored import Found
from headrace.plan.quantity import Quantity
from headrace.plan.recommendation.apis import api_options
from headrace.plan.recommendation.breach import Breach, RuledOut, RuledOutBy, ruled_out_by
from headrace.plan.recommendation.closest import nothing_fits
from headrace.plan.recommendation.commands import Command, commands_of
from headrace.plan.recommendation.models import open_models
from headrace.plan.recommendation.option import Option
from headrace.plan.recommendation.option_figures import size_figure
from headrace.plan.recommendation.places import RuntimeCandidate, settings, sites
from headrace.plan.recommendation.question import Question
from headrace.plan.recommendation.ranking import Alternatives, Order, Ranked, alternatives, ranked
from headrace.plan.recommendation.remedies import BEFORE_PLANNING, Planner, remedy_of
from headrace.plan.recommendation.self_hosted import SelfHosted
from headrace.plan.recommendation.size import PROXY
from headrace.telemetry.machine import Machine
from headrace.telemetry.nvidia_cards import NvidiaCard

_NEAREST = 3
# Of different models, before it is said that nothing near helps.
_TRIED = 6


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
    """The answer to a question: ranked options, commands, and what was excluded."""

    question: Question
    ranked: tuple[Ranked, ...]
    """Options, one for each model and place."""
    alternatives: Alternatives
    commands: dict[str, tuple[Command, ...]]
    ruled_out: tuple[RuledOutBy, ...]
    nearest: tuple[Miss, ...]
    """Excluded options that missed by the least; shown if no option is left."""
    looked_at: int
    """Combinations, ruled out included."""
    left: int
    notes: tuple[str, ...]
    options: tuple[Option, ...] = ()
    """All that are left, whose figures are not listed."""

    @property
    def nothing_fits(self) -> str:
        """What came closest and what would help, "" if an option is left."""
        return "" if self.left else nothing_fits(self.nearest, self.ruled_out)

    @property
    def figures(self) -> tuple[Quantity, ...]:
        """Every figure of the options that are told, by which `plan explain` finds them."""
        return tuple(figure for one in self.told for figure in one.all_figures)

    @property
    def told(self) -> tuple[Option, ...]:
        """Options that are told in full: those ranked, and the three ends; each once."""
        three = self.alternatives
        ends = [one for one in (three.cheapest, three.fastest, three.best) if one is not None]
        options = (*(one.option for one in self.ranked), *ends)
        return tuple({one.id: one for one in options}.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        question, three = self.question, self.alternatives
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
                "usual_min_quality_parameters": question.usual_least_parameters,
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
                for one in self.told
            ],
            "ruled_out": [one.as_dict() for one in self.ruled_out],
            "nothing_fits": self.nothing_fits,
            "nearest": [one.as_dict() for one in self.nearest],
            "quantities": [one.as_dict() for one in self.figures],
            "notes": list(self.notes),
        }  # fmt: skip


def recommend(
    catalog: Catalog,
    question: Question,
    *,
    machine: Machine | None = None,
    calibration: Found | None = None,
    cards: Sequence[NvidiaCard] = (),
    order: Order = "balance",
    most: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> Recommendation:
    """What to run. machine: what was measured of this one, calibration: of its engine; cards:
    that it has; most: options that are ranked; progress: called with the models that were looked at
    and all, once more from the beginning for each looser limit that is tried where nothing is left.

    Raises CatalogError for names that are none.
    """
    hosted, able, options, ruled_out = _looked_at(
        catalog, question, machine, calibration, cards, progress
    )

    def plan(other: Question) -> tuple[bool, list[RuledOut]]:
        _, _, left, out = _looked_at(catalog, other, machine, calibration, cards, progress)
        return bool(left), out

    three = alternatives(options)
    best = ranked(catalog, options, order)[:most]

    def in_full(option: Option) -> Option:
        found = hosted.told(option)
        size = size_figure(found.id, catalog.models[found.model])
        return found if size is None else replace(found, sources=(*found.sources, size))

    best = tuple(replace(one, option=in_full(one.option)) for one in best)
    three = Alternatives(
        **{
            name: None if one is None else in_full(one)
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
        nearest=() if options else _nearest(catalog, question, ruled_out, plan),
        looked_at=len(options) + len(ruled_out),
        left=len(options),
        notes=(
            *question.assumptions,
            f"size is {PROXY}",
            *_of_runtimes(able),
            *_of_calibration(calibration, able),
        ),
        options=tuple(options),
    )


def _looked_at(
    catalog: Catalog,
    question: Question,
    machine: Machine | None,
    calibration: Found | None,
    cards: Sequence[NvidiaCard],
    progress: Callable[[int, int], None] | None,
) -> tuple[SelfHosted, list[RuntimeCandidate], list[Option], list[RuledOut]]:
    """Every combination: the options that are left, and what was ruled out."""
    is_calibrated = calibration is not None and calibration.calibration is not None
    models, out = open_models(catalog, question)
    places, unfit = sites(catalog, question, machine is not None or is_calibrated, cards)
    able, cannot = settings(catalog, question, places)
    hosted = SelfHosted(catalog, question, machine, calibration)
    for done, model in enumerate(models, 1):
        for setting in able:
            hosted.look_at(model, setting)
        if progress is not None:
            progress(done, len(models))
    sold, unsold = api_options(catalog, question)
    ruled_out = [*out, *unfit, *cannot, *hosted.out, *unsold]
    return hosted, able, [*hosted.options, *sold], ruled_out


def _of_runtimes(able: Sequence[RuntimeCandidate]) -> tuple[str, ...]:
    if len({one.runtime.id for one in able}) < 2:
        return ()
    return (
        "efficiencies are stated per kind of device and not per runtime, so all runtimes are "
        "planned with the same; one that reaches less at large batches is slower than planned",
    )


def _of_calibration(found: Found | None, able: Sequence[RuntimeCandidate]) -> tuple[str, ...]:
    """Whether this machine was planned with one, where it was looked at at all."""
    if found is None or not any(one.site.row is None for one in able):
        return ()
    if found.calibration is None:
        return (found.note,) if found.note else ()
    return (
        f"headrace on this machine is planned with the calibration of {found.calibration.day} "
        f"({found.path}), other runtimes on it with stated efficiencies",
    )


def _nearest(
    catalog: Catalog, question: Question, ruled_out: list[RuledOut], plan: Planner
) -> tuple[Miss, ...]:
    """By the least excess, one of each model; those with a change of the command that helps first.

    Changes are planned before they are said. What was ruled out before it was planned comes after
    what was, as nobody knows what else it would break, and is told only where its change helps.
    """

    def unplanned(one: RuledOut) -> bool:
        return any(each.rule in BEFORE_PLANNING for each in one.breaches)

    def unsure(one: RuledOut) -> bool:
        return not all(each.option for each in one.breaches)

    def age(one: RuledOut) -> int:
        row = catalog.models.find(one.model)
        return 0 if row is None or row.released is None else -row.released.toordinal()

    by_degree = [one for one in ruled_out if one.excess < float("inf")]
    by_model: dict[str, RuledOut] = {}
    for one in sorted(by_degree, key=lambda one: (
        unsure(one), unplanned(one), one.excess, age(one),
    )):  # fmt: skip
        by_model.setdefault(one.model or one.name, one)
    sure, rest = [], []
    for one in list(by_model.values())[:_TRIED]:
        remedy = None if unsure(one) or not one.model else remedy_of(question, one, plan)
        if remedy is not None:
            sure.append(Miss(name=one.name, breaches=remedy.breaches, options=remedy.options,
                             remedies=()))  # fmt: skip
        elif unsure(one) or not unplanned(one):
            remedies = tuple(catalog.rules[each.rule].remedy for each in one.breaches)
            rest.append(Miss(name=one.name, breaches=one.breaches, options=(), remedies=remedies))
        if len(sure) == _NEAREST:
            break
    return tuple([*sure, *rest][:_NEAREST])
