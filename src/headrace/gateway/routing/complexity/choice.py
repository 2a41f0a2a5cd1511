"""The model that a request is given by its complexity, as far as nobody has to be asked for it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.gateway.routing.complexity.rules import why
from headrace.gateway.routing.complexity.view import View, tokens_of
from headrace.gateway.settings.complexity import ChooseSettings


class Classifier(Protocol):
    """Tells hard requests from simple ones."""

    def probability(self, view: View) -> float:
        """That the request is hard, between 0 and 1."""


class Choice(NamedTuple):
    """said: why, in a few words. is_default: whether nothing spoke for another model than
    `default`."""

    model: str
    said: str
    is_default: bool = False


def choice_of(settings: ChooseSettings, view: View, classifier: Classifier | None) -> Choice | None:
    """None where a router model has to be asked. Rules go before everything else."""
    for number, rule in enumerate(settings.rules, 1):
        said = why(rule.when, view)
        if said is not None:
            return Choice(rule.use, f"rule {number} ({said})")
    if settings.by == "model":
        return None
    if settings.by == "length":
        tokens = tokens_of(view, settings.length_of)
        passed = [one for one in settings.length if tokens > one.tokens_over]
        if passed:
            step = max(passed, key=lambda one: one.tokens_over)
            return Choice(step.use, f"length ({tokens} tokens > {step.tokens_over})")
        return Choice(settings.default, f"length ({tokens} tokens)", is_default=True)
    if settings.classifier is not None and classifier is not None:
        hard = classifier.probability(view)
        if hard >= settings.classifier.threshold:
            return Choice(settings.classifier.hard, f"complexity=hard ({hard:.2f})")
        return Choice(settings.default, f"complexity=simple ({1 - hard:.2f})", is_default=True)
    return Choice(settings.default, "no rule held", is_default=True)
