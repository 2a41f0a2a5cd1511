"""The file, read and checked on its own and as a whole.

What is checked here needs no provider and no catalog: names that point nowhere, circles, targets
whose provider is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.config.load import nearest
from headrace.config.nested import read_nested
from headrace.config.text_file import read_text_file
from headrace.config.yaml_file import Document, read_yaml
from headrace.errors import ConfigError, shown
from headrace.gateway.settings.gateway import GatewaySettings

# A thousand models with ten targets each have 1 MB.
MAX_FILE_BYTES = 4 * 2**20


def read_settings(path: Path) -> GatewaySettings:
    """Of a YAML file. Raises ConfigError with line and path of what is not as it must be."""
    name = str(path)
    text = read_text_file(path, "--config", MAX_FILE_BYTES)
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
    targets = value.get("targets")
    if isinstance(targets, str):
        targets = [targets]
    if isinstance(targets, list):
        written = [{"model": one} if isinstance(one, str) else one for one in targets]
        value = {**value, "targets": written}
    return value


def _provider(value: Any) -> Any:
    if value is None:
        return {}
    if isinstance(value, str):
        is_address = value.startswith(("http://", "https://"))
        return {"base_url": value} if is_address else {"api_key": [value]}
    if isinstance(value, dict) and isinstance(value.get("api_key"), str):
        return {**value, "api_key": [value["api_key"]]}
    return value


def _check_names(settings: GatewaySettings, document: Document, name: str) -> None:
    models = settings.models
    known = [*models, *settings.aliases]

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
        names = [target.model for target in one.targets]
        for at, target in enumerate(one.targets):
            where = f"models.{model}.targets.{at}"
            if not _names_provider(target.model, settings):
                provider, _, inner = target.model.partition("/")
                if not inner:
                    raise fail(where, f"{shown(target.model)} is not `provider/model`")
                meant = nearest(provider, settings.providers)
                raise fail(where, f"{shown(provider)} is no provider of this file{meant}")
            if names.count(target.model) > 1 and names.index(target.model) != at:
                raise fail(where, f"{shown(target.model)} is there twice; give it a higher weight")


def _names_provider(text: str, settings: GatewaySettings) -> bool:
    provider, mark, model = text.partition("/")
    return bool(mark) and bool(model) and provider in settings.providers
