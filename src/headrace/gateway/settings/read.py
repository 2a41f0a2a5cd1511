"""The file, read and checked on its own and as a whole.

What is checked here needs no provider and no catalog: names that point nowhere, circles, targets
whose provider is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.config.load import nearest
from headrace.config.nested import read_nested
from headrace.config.text_file import read_text_file
from headrace.config.yaml_file import Document, read_yaml
from headrace.errors import ConfigError, shown
from headrace.gateway.settings.admin import AdminSettings
from headrace.gateway.settings.check_traffic import (
    SHADOW_KEY,
    target_lists,
    traffic_problems,
    written_targets,
    written_traffic,
)
from headrace.gateway.settings.composed import check_composed, written_out
from headrace.gateway.settings.gateway import GatewaySettings, ListenSettings
from headrace.gateway.settings.secret import is_plain
from headrace.gateway.settings.yaml_words import guardrails_named, prompts_named

# A thousand models with ten targets each have 1 MB.
MAX_FILE_BYTES = 4 * 2**20
# host:port, or a host with a path; no key has these, so that its scheme was forgotten.
_ADDRESS = re.compile(
    r"(?:localhost|(?:\d{1,3}\.){3}\d{1,3}|[A-Za-z0-9.-]+(?=:\d)"
    r"|[a-z0-9-]+(?:\.[a-z0-9-]+)+(?=/))"
    r"(?::\d{1,5})?(?:/.*)?"
)


def read_settings(path: Path) -> GatewaySettings:
    """Of a YAML file. Raises ConfigError with line and path of what is not as it must be."""
    return settings_of_text(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Of the file. Raises ConfigError."""
    return read_text_file(path, "--config", MAX_FILE_BYTES)


def settings_of_text(text: str, name: str) -> GatewaySettings:
    """name: what errors call it. Raises ConfigError as `read_settings`."""
    documents = read_yaml(text, name, once=True)
    if len(documents) > 1:
        raise ConfigError(f"{name}: has {len(documents)} documents; keep one")
    document = documents[0] if documents else Document({}, {})
    return parse_settings(document, name)


def parse_settings(document: Document, name: str) -> GatewaySettings:
    """Of a document that was read."""
    document = Document(_written_out(document.loaded), _lines(document))
    settings = read_nested(document, GatewaySettings, name)
    _check_names(settings, document, name)
    return settings


def _written_out(loaded: Any) -> Any:
    """Short forms made long: a target as its model alone, a model as its list of targets, a
    provider as its key or its address, keys as one."""
    if not isinstance(loaded, dict):
        return loaded
    found = dict(loaded)
    models = found.get("models")
    if isinstance(models, dict):
        found["models"] = {name: _model(one) for name, one in models.items()}
    providers = found.get("providers")
    if isinstance(providers, dict):
        found["providers"] = {name: _provider(one) for name, one in providers.items()}
    if "guardrails" in found:
        found["guardrails"] = guardrails_named(found["guardrails"])
    if "prompts" in found:
        found["prompts"] = prompts_named(found["prompts"])
    return found


def _lines(document: Document) -> dict[str, int]:
    """With the paths that short forms have once they are long."""
    found = dict(document.lines)
    models = document.loaded.get("models") if isinstance(document.loaded, dict) else None
    for name, listed in models.items() if isinstance(models, dict) else ():
        path = f"models.{name}"
        targets = listed.get("targets") if isinstance(listed, dict) else listed
        if isinstance(targets, str):
            inner = path if targets is listed else f"{path}.targets"
            if inner in found:
                found[f"{path}.targets.0"] = found[inner]
        for at, one in enumerate(listed) if isinstance(listed, list) else ():
            for inner in ("", *(f".{key}" for key in one)) if isinstance(one, dict) else ("",):
                line = document.lines.get(f"{path}.{at}{inner}")
                if line is not None:
                    found[f"{path}.targets.{at}{inner}"] = line
    return found


def _model(value: Any) -> Any:
    if isinstance(value, str | list):
        value = {"targets": value}
    if not isinstance(value, dict):
        return value
    if "targets" in value:
        value = {**value, "targets": written_targets(value["targets"])}
    return written_out(written_traffic(value))


def _provider(value: Any) -> Any:
    if value is None:
        return {}
    if isinstance(value, str):
        is_address = value.startswith(("http://", "https://")) or _lacks_scheme(value)
        return {"base_url": value} if is_address else {"api_key": [value]}
    if isinstance(value, dict) and isinstance(value.get("api_key"), str):
        return {**value, "api_key": [value["api_key"]]}
    return value


def _lacks_scheme(value: str) -> bool:
    return is_plain(value) and _ADDRESS.fullmatch(value) is not None


def _check_names(settings: GatewaySettings, document: Document, name: str) -> None:
    models = settings.models
    known = [*models, *settings.aliases]
    if settings.admin is not None and _is_one_address(settings.listen, settings.admin):
        line = document.lines.get("admin.port") or document.lines.get("admin")
        raise ConfigError(
            f"{name}{f':{line}' if line else ''}: admin.port: {settings.admin.port} is that of "
            "listen.port too, on the same host; choose another, or 0 for a free one"
        )

    def fail(path: str, message: str) -> ConfigError:
        line = document.lines.get(path)
        return ConfigError(f"{name}{f':{line}' if line else ''}: {path}: {message}")

    for alias, meant_model in settings.aliases.items():
        if alias in models:
            raise fail(f"aliases.{alias}", "there is a model of that name; rename one")
        if meant_model not in models:
            meant = nearest(meant_model, models)
            raise fail(f"aliases.{alias}", f"{shown(meant_model)} is no model of this file{meant}")
    for at, glob in enumerate(settings.cache.models):
        is_glob = any(mark in glob for mark in "*?[")
        if not is_glob and glob not in known and not _names_provider(glob, settings):
            meant = nearest(glob, known)
            raise fail(f"cache.models.{at}", f"{shown(glob)} is no model of this file{meant}")
    if (semantic := settings.cache.semantic) is not None:
        embedder = semantic.embedding_model
        passed_on = settings.pass_unknown_models and _names_provider(embedder, settings)
        if embedder not in known and not passed_on:
            where = "cache.semantic.embedding_model"
            meant = nearest(embedder, known)
            raise fail(where, f"{shown(embedder)} is no model of this file{meant}")
    for path, names_given in _guardrails_named(settings):
        for guardrail in names_given:
            if guardrail not in settings.guardrails:
                meant = nearest(guardrail, settings.guardrails)
                raise fail(path, f"{shown(guardrail)} is no guardrail of this file{meant}")
    for model, one in models.items():
        for field in ("fallbacks", "context_fallbacks", "policy_fallbacks"):
            for other in getattr(one, field):
                if other == model:
                    raise fail(f"models.{model}.{field}", "a model is no fallback of itself")
                if other not in known and not _names_provider(other, settings):
                    meant = nearest(other, known)
                    raise fail(
                        f"models.{model}.{field}",
                        f"{shown(other)} is no model of this file{meant}",
                    )
        for path, message in traffic_problems(model, one):
            raise fail(path, message)
        if one.shadow is not None and SHADOW_KEY in settings.access.keys:
            told = f"what shadows cost goes on the key {SHADOW_KEY}; give this key another name"
            raise fail(f"access.keys.{SHADOW_KEY}", told)
        for targets in target_lists(model, one):
            seen: set[str] = set()
            for where, target in targets.items():
                if not _names_provider(target.model, settings):
                    provider, _, inner = target.model.partition("/")
                    if not inner:
                        raise fail(where, f"{shown(target.model)} is not `provider/model`")
                    meant = nearest(provider, settings.providers)
                    raise fail(where, f"{shown(provider)} is no provider of this file{meant}")
                if target.model in seen:
                    told = f"{shown(target.model)} is there twice; give it a higher weight"
                    raise fail(where, told)
                seen.add(target.model)
    check_composed(
        settings,
        lambda one: settings.pass_unknown_models and _names_provider(one, settings),
        fail,
    )


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
