"""What would make the impossible possible, said only after it was planned."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headrace.plan.recommendation.breach import Breach, RuledOut
from headrace.plan.recommendation.question import Question, parse_slo

# Rules that stop before anything is planned: what else is missed, nobody knows then.
BEFORE_PLANNING = frozenset(
    {"rule-age", "rule-context", "rule-licence", "rule-size", "rule-usual-size", "rule-memory"}
)
_ROUNDS = 3

# Whether anything is left of a question, and what was ruled out.
Planner = Callable[[Question], tuple[bool, list[RuledOut]]]


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """Options with which the model is possible, and the breaches that they mend."""

    options: tuple[str, ...]
    breaches: tuple[Breach, ...]


def changed(question: Question, options: Iterable[str]) -> Question | None:
    """The question as these options of the command change it; None where it is none then."""
    for option in options:
        flag, *values = shlex.split(option)
        value = values[0] if values else ""
        if flag == "--slo":
            question = replace(question, slo=parse_slo(value))
        elif flag == "--budget":
            question = replace(question, budget_usd=float(value))
        elif flag == "--max-devices":
            question = replace(question, max_devices=int(value))
        elif flag == "--min-quality":
            question = replace(question, least_parameters=float(value), usual_least_parameters=None)
        elif flag == "--any-licence":
            question = replace(question, any_licence=True)
        elif flag == "--model":
            question = replace(question, models=(value,), usual_least_parameters=None)
        elif flag == "--context":
            if int(value) < question.prompt_tokens + question.output_tokens:
                return None
            question = replace(question, context_tokens=int(value))
        else:
            return None
    return question


def remedy_of(question: Question, miss: RuledOut, plan: Planner) -> Remedy | None:
    """What helps that model: its own options, and those that turn out to be needed besides.

    None where they do not help, or where what is missed besides is no matter of degree.
    """
    breaches = list(miss.breaches)
    for _ in range(_ROUNDS):
        options = _options(breaches)
        asked = changed(question, options)
        if asked is None or not options:
            return None
        left, out = plan(replace(asked, models=(miss.model,)))
        if left:
            return Remedy(options=options, breaches=tuple(breaches))
        more = min(
            (one for one in out if one.excess < float("inf") and _all_have_options(one)),
            key=lambda one: one.excess, default=None,
        )  # fmt: skip
        if more is None:
            return None
        rules = {one.rule for one in more.breaches}
        breaches = [*(one for one in breaches if one.rule not in rules), *more.breaches]
        if _options(breaches) == options:
            return None
    return None


def _options(breaches: Iterable[Breach]) -> tuple[str, ...]:
    """One for each flag: the last that says it."""
    by_flag = {shlex.split(one.option)[0]: one.option for one in breaches if one.option}
    return tuple(by_flag.values())


def _all_have_options(one: RuledOut) -> bool:
    return all(each.option for each in one.breaches)
