"""Models made of other models: short forms made long, and names that must hold together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.config.load import nearest
from headrace.errors import shown
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.model import ModelSettings


def written_out(model: dict[str, Any]) -> dict[str, Any]:
    """The model with stages that are written as a name alone expanded to settings."""
    found = dict(model)
    cascade, pipeline = found.get("cascade"), found.get("pipeline")
    if isinstance(cascade, dict) and isinstance(cascade.get("stages"), list):
        found["cascade"] = {**cascade, "stages": [_stage(one) for one in cascade["stages"]]}
    if isinstance(pipeline, dict):
        long = {name: _stage(pipeline[name]) for name in ("draft", "final") if name in pipeline}
        found["pipeline"] = {**pipeline, **long}
    return found


def made_of(model: ModelSettings) -> tuple[str, ...]:
    """The models that answer for a model without targets, in the order in which they may be "
    "tried."""
    composed = model.choose or model.cascade or model.pipeline
    return () if composed is None else composed.models


def composed_problems(
    settings: GatewaySettings, names_provider: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Place in the file and what is wrong there: a model that is not there, one that ends at
    itself, a stage that has stages itself."""
    known = [*settings.models, *settings.aliases]
    for name, model in settings.models.items():
        for field, other, plain in _named(model):
            path = f"models.{name}.{field}"
            if other not in known and not names_provider(other):
                yield path, f"{shown(other)} is not a model of this file{nearest(other, known)}"
                continue
            inner = _model(settings, other)
            if other == name or (inner is model):
                yield path, f"{shown(name)} refers to itself; name another model"
            elif plain and inner is not None and not (inner.targets or inner.variants):
                yield (
                    path,
                    f"{shown(other)} is itself made of other models; name one that has targets",
                )
        if model.choose is not None:
            yield from _circles(settings, name, (name,))


def _circles(
    settings: GatewaySettings, name: str, passed: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    model = settings.models[name]
    for other in model.choose.models if model.choose is not None else ():
        other = settings.aliases.get(other, other)
        if other in passed:
            circle = " -> ".join((*passed, other))
            yield f"models.{passed[0]}.choose", f"the models form a cycle: {circle}"
        elif other in settings.models:
            yield from _circles(settings, other, (*passed, other))


def _named(model: ModelSettings) -> list[tuple[str, str, bool]]:
    """Fields that name a model, the name, and whether it must have targets of its own."""
    found: list[tuple[str, str, bool]] = []
    choose, cascade, pipeline = model.choose, model.cascade, model.pipeline
    if choose is not None:
        found.append(("choose.default", choose.default, False))
        found += [(f"choose.rules.{at}.use", one.use, False) for at, one in
                  enumerate(choose.rules)]  # fmt: skip
        found += [(f"choose.length.{at}.use", one.use, False) for at, one in
                  enumerate(choose.length)]  # fmt: skip
        if choose.classifier is not None:
            found.append(("choose.classifier.hard", choose.classifier.hard, False))
        if choose.model is not None:
            found.append(("choose.model.ask", choose.model.ask, True))
            found += [(f"choose.model.classes.{at}", one, False) for at, one in
                      choose.model.classes.items()]  # fmt: skip
            if choose.model.on_error is not None:
                found.append(("choose.model.on_error", choose.model.on_error, False))
    if cascade is not None:
        found += [(f"cascade.stages.{at}.model", one.model, True) for at, one in
                  enumerate(cascade.stages)]  # fmt: skip
        if cascade.accept.judge.model is not None:
            found.append(("cascade.accept.judge.model", cascade.accept.judge.model, True))
    if pipeline is not None:
        found.append(("pipeline.draft.model", pipeline.draft.model, True))
        found.append(("pipeline.final.model", pipeline.final.model, True))
        if pipeline.decide.judge.model is not None:
            found.append(("pipeline.decide.judge.model", pipeline.decide.judge.model, True))
    return found


def _model(settings: GatewaySettings, name: str) -> ModelSettings | None:
    models: Mapping[str, ModelSettings] = settings.models
    return models.get(settings.aliases.get(name, name))


def _stage(value: Any) -> Any:
    return {"model": value} if isinstance(value, str) else value
