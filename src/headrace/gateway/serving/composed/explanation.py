"""What a composed model would do with a request, without doing it."""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import RequestError
from headrace.gateway.routing.complexity.choice import choice_of
from headrace.gateway.routing.complexity.view import view_of
from headrace.gateway.serving.composed.choosing import question_of
from headrace.gateway.serving.composed.ways import Ways
from headrace.gateway.settings.model import ModelSettings
from headrace.protocol.neutral.call import ChatCall


class CompositeExplanation(NamedTuple):
    """The steps that a composed model would take for one request."""

    model: str | None
    """The model that answers in the end; None if that depends on answers."""
    said: tuple[str, ...]
    """The steps, for people to read."""
    question: tuple[tuple[str, str], ...] = ()
    """What a router model would be sent, as (role, text)."""
    asks: tuple[str, ...] = ()
    """`model`, or else the models that may be called, in order."""


def explained(ways: Ways, name: str, body: bytes) -> CompositeExplanation:
    """Explain the body of a chat completion; if it is not readable, no choice by content is."""
    why = ""
    try:
        call: ChatCall | None = ways.chat.read_call(body, "/v1/chat/completions", {})
    except RequestError as error:
        call, why = None, str(error)
    steps: list[str] = []
    while (model := ways.model(name)) is not None:
        choose = model.choose
        if choose is None:
            steps.append(f"{name}: {way_of(model)}")
            return CompositeExplanation(None, tuple(steps), asks=stages_of(model))
        if call is None:
            steps.append(f"{name}: by {choose.by}, which needs a body with messages ({why})")
            return CompositeExplanation(None, tuple(steps), asks=choose.models)
        view = view_of(call)
        choice = choice_of(choose, view, ways.classifier)
        if choice is None:
            settings = choose.model
            assert settings is not None
            classes = ", ".join(
                f"{kind} -> {model_name}" for kind, model_name in settings.classes.items()
            )
            steps.append(f"{name}: {settings.ask} names the class ({classes})")
            asks = (settings.ask, *choose.models)
            return CompositeExplanation(None, tuple(steps), question_of(settings, view), asks)
        steps.append(f"{name}: {choice.said} -> {choice.model}")
        name = choice.model
    return CompositeExplanation(name, tuple(steps), asks=(name,))


def way_of(model: ModelSettings) -> str:
    """How a composed model finds its answer, for people to read; "" for one with targets."""
    if model.choose is not None:
        return f"one of {', '.join(model.choose.models)}, by {model.choose.by}"
    if model.cascade is not None:
        accept = model.cascade.accept
    elif model.pipeline is not None:
        accept = model.pipeline.decide
    else:
        return ""
    good = "rules hold" if accept.by == "rules" else f"{accept.by} >= {accept.least:g}"
    return f"{' -> '.join(stages_of(model))}; an answer is accepted if {good}"


def stages_of(model: ModelSettings) -> tuple[str, ...]:
    """The stages of a cascade or a pipeline, in the order in which they are called; else ()."""
    composed = model.cascade or model.pipeline
    return () if composed is None else tuple(reversed(composed.models))
