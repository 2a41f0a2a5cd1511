"""Names of a gateway's file that point nowhere, circles, and what does not fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.config.load import nearest
from headrace.errors import shown
from headrace.gateway.settings.admin import AdminSettings
from headrace.gateway.settings.check_traffic import SHADOW_KEY, target_lists, traffic_problems
from headrace.gateway.settings.composed import composed_problems
from headrace.gateway.settings.gateway import GatewaySettings, ListenSettings
from headrace.gateway.settings.model import ModelSettings

# Place in the file, and what is wrong there.
Problems = Iterator[tuple[str, str]]


def name_problems(settings: GatewaySettings) -> Problems:
    """Problems between settings that are each valid by themselves."""
    models = settings.models
    known = [*models, *settings.aliases]
    if settings.admin is not None and _is_one_address(settings.listen, settings.admin):
        yield (
            "admin.port",
            f"{settings.admin.port} is also listen.port, on the same host; choose another, or 0 "
            "for a free one",
        )
    for alias, meant_model in settings.aliases.items():
        if alias in models:
            yield f"aliases.{alias}", "a model has that name; rename one"
        if meant_model not in models:
            yield f"aliases.{alias}", _no_model(meant_model, models)
    yield from _of_cache(settings, known)
    for path, names_given in _guardrails_named(settings):
        for guardrail in names_given:
            if guardrail not in settings.guardrails:
                meant = nearest(guardrail, settings.guardrails)
                yield path, f"{shown(guardrail)} is not a guardrail of this file{meant}"
    for name, model in models.items():
        yield from _of_fallbacks(name, model, settings, known)
        yield from traffic_problems(name, model)
        if model.shadow is not None and SHADOW_KEY in settings.access.keys:
            yield (
                f"access.keys.{SHADOW_KEY}",
                f"the cost of shadow requests is charged to the key {SHADOW_KEY}; give this key "
                "another name",
            )
        yield from _of_targets(name, model, settings)
    yield from composed_problems(
        settings, lambda one: settings.pass_unknown_models and _names_provider(one, settings)
    )


def _no_model(name: str, known: Iterable[str]) -> str:
    return f"{shown(name)} is not a model of this file{nearest(name, known)}"


def _of_cache(settings: GatewaySettings, known: list[str]) -> Problems:
    for at, glob in enumerate(settings.cache.models):
        is_glob = any(mark in glob for mark in "*?[")
        if not is_glob and glob not in known and not _names_provider(glob, settings):
            yield f"cache.models.{at}", _no_model(glob, known)
    if (semantic := settings.cache.semantic) is not None:
        embedder = semantic.embedding_model
        passed_on = settings.pass_unknown_models and _names_provider(embedder, settings)
        if embedder not in known and not passed_on:
            yield "cache.semantic.embedding_model", _no_model(embedder, known)


def _of_fallbacks(
    name: str, model: ModelSettings, settings: GatewaySettings, known: list[str]
) -> Problems:
    for field in ("fallbacks", "context_fallbacks", "policy_fallbacks"):
        for other in getattr(model, field):
            if other == name:
                yield f"models.{name}.{field}", "a model cannot be its own fallback"
            elif other not in known and not _names_provider(other, settings):
                yield f"models.{name}.{field}", _no_model(other, known)


def _of_targets(name: str, model: ModelSettings, settings: GatewaySettings) -> Problems:
    for targets in target_lists(name, model):
        seen: set[str] = set()
        for where, target in targets.items():
            if not _names_provider(target.model, settings):
                provider, _, inner = target.model.partition("/")
                if not inner:
                    yield where, f"{shown(target.model)} is not `provider/model`"
                else:
                    meant = nearest(provider, settings.providers)
                    yield where, f"{shown(provider)} is not a provider of this file{meant}"
            elif target.model in seen:
                yield where, f"{shown(target.model)} is listed twice; give it a higher weight"
            seen.add(target.model)


def _is_one_address(listen: ListenSettings, admin: AdminSettings) -> bool:
    """Whether the admin port would be taken by that of clients. A host of all addresses has each
    of them."""
    if listen.port != admin.port or admin.port == 0:
        return False
    return listen.host == admin.host or bool({listen.host, admin.host} & {"", "0.0.0.0", "::"})


def _guardrails_named(settings: GatewaySettings) -> Iterator[tuple[str, tuple[str, ...]]]:
    access = settings.access
    for name, model in settings.models.items():
        yield f"models.{name}.guardrails", model.guardrails
    for group in ("organisations", "teams", "users", "keys"):
        for name, terms in getattr(access, group).items():
            yield f"access.{group}.{name}.guardrails", terms.guardrails


def _names_provider(text: str, settings: GatewaySettings) -> bool:
    provider, mark, model = text.partition("/")
    return bool(mark) and bool(model) and provider in settings.providers
