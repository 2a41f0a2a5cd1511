"""What a model made of others would do with a request: said, not done."""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import RequestError
from headrace.gateway.routing.complexity.choice import choice_of
from headrace.gateway.routing.complexity.view import view_of
from headrace.gateway.serving.composed.choosing import question_of
from headrace.gateway.serving.composed.ways import Ways
from headrace.protocol.neutral.call import ChatCall


class Explained(NamedTuple):
    """model: what is asked in the end, None where that hangs on answers. said: the steps, for
    people. question: what a router model would be asked, as (role, text)."""

    model: str | None
    said: tuple[str, ...]
    question: tuple[tuple[str, str], ...] = ()


def explained(ways: Ways, name: str, body: bytes) -> Explained:
    """body: of a chat completion; one without messages tells nothing of a choice."""
    try:
        call: ChatCall | None = ways.chat.read_call(body, "/v1/chat/completions", {})
    except RequestError:
        call = None
    said: list[str] = []
    while (model := ways.model(name)) is not None:
        if model.choose is None:
            composed = model.cascade or model.pipeline
            assert composed is not None
            order = list(reversed(composed.models))
            accept = model.cascade.accept if model.cascade is not None else None
            if model.pipeline is not None:
                accept = model.pipeline.decide
            assert accept is not None
            good = "rules hold" if accept.by == "rules" else f"{accept.by} >= {accept.least:g}"
            said.append(f"{name}: {' -> '.join(order)}; an answer is told if {good}")
            return Explained(None, tuple(said))
        if call is None:
            said.append(f"{name}: by {model.choose.by}; give --request a body with messages")
            return Explained(None, tuple(said))
        view = view_of(call)
        choice = choice_of(model.choose, view, ways.classifier)
        if choice is None:
            assert model.choose.model is not None
            settings = model.choose.model
            classes = ", ".join(f"{one} -> {to}" for one, to in settings.classes.items())
            said.append(f"{name}: {settings.ask} is asked for the class ({classes})")
            return Explained(None, tuple(said), question_of(settings, view))
        said.append(f"{name}: {choice.said} -> {choice.model}")
        name = choice.model
    return Explained(name, tuple(said))
