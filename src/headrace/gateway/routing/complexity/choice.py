"""Chooses a model by the complexity of a request, unless a router model has to decide."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.gateway.routing.complexity.rules import why
from headrace.gateway.routing.complexity.view import View, tokens_of
from headrace.gateway.settings.complexity import ChooseSettings


class Classifier(Protocol):
    """A classifier that separates hard requests from simple ones."""

    def probability(self, view: View) -> float:
        """The probability that the request is hard."""


class Choice(NamedTuple):
    """A chosen model."""

    model: str
    said: str
    """The reason, in a few words."""
    is_default: bool = False
    """Whether nothing spoke for a model other than `default`."""


def choice_of(settings: ChooseSettings, view: View, classifier: Classifier | None) -> Choice | None:
    """The model to use; None if a router model has to decide. Rules come first."""
    for number, rule in enumerate(settings.rules, 1):
        reason = why(rule.when, view)
        if reason is not None:
            return Choice(rule.use, f"rule {number} ({reason})")
    if settings.by == "model":
        return None
    if settings.by == "length":
        tokens = tokens_of(view, settings.length_of)
        reached = [step for step in settings.length if tokens > step.tokens_over]
        if reached:
            longest = max(reached, key=lambda step: step.tokens_over)
            return Choice(longest.use, f"length ({tokens} tokens > {longest.tokens_over})")
        return Choice(settings.default, f"length ({tokens} tokens)", is_default=True)
    if settings.classifier is not None and classifier is not None:
        hard = classifier.probability(view)
        if hard >= settings.classifier.threshold:
            return Choice(settings.classifier.hard, f"complexity=hard ({hard:.2f})")
        return Choice(settings.default, f"complexity=simple ({1 - hard:.2f})", is_default=True)
    return Choice(settings.default, "no rule matched", is_default=True)
