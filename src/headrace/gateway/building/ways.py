"""Models of the file that are made of other models."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from headrace.gateway.routing.complexity.choice import Classifier
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.serving.composed.ways import Ways
from headrace.gateway.settings.composed import made_of
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.model import ModelSettings
from headrace.http.large_bodies import LargeBodies
from headrace.protocol.neutral.dialect import ClientSide


def ways_of(
    settings: GatewaySettings,
    router: Router,
    chosen: Sticky,
    chat: ClientSide,
    *,
    clock_ns: Callable[[], int],
    source: random.Random,
    large_bodies: LargeBodies,
) -> Ways | None:
    """None where the file has none. chosen: what conversations were given, by model."""
    models = {name: one for name, one in settings.models.items() if made_of(one)}
    if not models:
        return None
    return Ways(
        models=models,
        router=router,
        chat=chat,
        chosen=chosen,
        unsupported=settings.unsupported,
        most_reply_bytes=settings.listen.max_reply_bytes,
        large_bodies=large_bodies,
        clock_ns=clock_ns,
        source=source,
        classifier=_classifier(models.values()),
    )


def _classifier(models: Iterable[ModelSettings]) -> Classifier | None:
    """Read only where a model uses it."""
    if not any(_uses_classifier(model) for model in models):
        return None
    from headrace.gateway.routing.complexity.classifier import shipped

    return shipped()


def _uses_classifier(model: ModelSettings) -> bool:
    accepts = [one.accept for one in (model.cascade,) if one is not None]
    accepts += [one.decide for one in (model.pipeline,) if one is not None]
    chooses = model.choose is not None and model.choose.by == "classifier"
    return chooses or any(accept.by == "classifier" for accept in accepts)
