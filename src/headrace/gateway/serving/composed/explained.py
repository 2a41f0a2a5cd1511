"""What a model made of others would do with a request: said, not done."""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import RequestError
from headrace.gateway.routing.complexity.choice import choice_of
from headrace.gateway.routing.complexity.view import view_of
from headrace.gateway.serving.composed.choosing import question_of
from headrace.gateway.serving.composed.ways import Ways
from headrace.gateway.settings.model import ModelSettings
from headrace.protocol.neutral.call import ChatCall


class Explained(NamedTuple):
    """model: what is asked in the end, None where that hangs on answers. said: the steps, for
    people. question: what a router model would be asked, as (role, text). asks: `model`; else
    those that may be asked, in their order."""

    model: str | None
    said: tuple[str, ...]
    question: tuple[tuple[str, str], ...] = ()
    asks: tuple[str, ...] = ()


def explained(ways: Ways, name: str, body: bytes) -> Explained:
    """body: of a chat completion; one that cannot be read as one tells nothing of a choice."""
    why = ""
    try:
        call: ChatCall | None = ways.chat.read_call(body, "/v1/chat/completions", {})
    except RequestError as error:
        call, why = None, str(error)
    said: list[str] = []
    while (model := ways.model(name)) is not None:
        choose = model.choose
        if choose is None:
            said.append(f"{name}: {way_of(model)}")
            return Explained(None, tuple(said), asks=stages_of(model))
        if call is None:
            said.append(f"{name}: by {choose.by}, which a body with messages tells ({why})")
            return Explained(None, tuple(said), asks=choose.models)
        view = view_of(call)
        choice = choice_of(choose, view, ways.classifier)
        if choice is None:
            settings = choose.model
            assert settings is not None
            classes = ", ".join(f"{one} -> {to}" for one, to in settings.classes.items())
            said.append(f"{name}: {settings.ask} is asked for the class ({classes})")
            asks = (settings.ask, *choose.models)
            return Explained(None, tuple(said), question_of(settings, view), asks)
        said.append(f"{name}: {choice.said} -> {choice.model}")
        name = choice.model
    return Explained(name, tuple(said), asks=(name,))


def way_of(model: ModelSettings) -> str:
    """How a model made of others finds who answers, for people; "" for one with targets."""
    if model.choose is not None:
        return f"one of {', '.join(model.choose.models)}, by {model.choose.by}"
    if model.cascade is not None:
        accept = model.cascade.accept
    elif model.pipeline is not None:
        accept = model.pipeline.decide
    else:
        return ""
    good = "rules hold" if accept.by == "rules" else f"{accept.by} >= {accept.least:g}"
    return f"{' -> '.join(stages_of(model))}; an answer is told if {good}"


def stages_of(model: ModelSettings) -> tuple[str, ...]:
    """Of a cascade or a pipeline, in the order in which they are asked; else ()."""
    composed = model.cascade or model.pipeline
    return () if composed is None else tuple(reversed(composed.models))
