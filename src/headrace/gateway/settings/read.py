"""The file, read and checked on its own and as a whole.

What is checked here needs no provider and no catalog: names that point nowhere, circles, targets
whose provider is not there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headrace.config.nested import Partly, Problem, read_partly
from headrace.config.text_file import read_text_file
from headrace.config.yaml_file import Document, read_yaml
from headrace.errors import ConfigError, config_error
from headrace.gateway.settings.check_names import name_problems
from headrace.gateway.settings.check_traffic import written_targets, written_traffic
from headrace.gateway.settings.composed import written_out
from headrace.gateway.settings.gateway import GatewaySettings
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
    """The settings in a YAML file. Raises ConfigError with line and path of each problem."""
    return settings_of_text(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The file's text. Raises ConfigError."""
    if not path.exists():
        raise ConfigError(
            f"--config {path}: there is no such file; name yours with --config, or begin with "
            f"`providers: {{openai: env:OPENAI_API_KEY}}` and `access: {{require_key: false}}`, "
            "which serves every openai/MODEL; `headrace gateway import FILE` converts one of "
            "LiteLLM's"
        )
    return read_text_file(path, "--config", MAX_FILE_BYTES)


def settings_of_text(text: str, name: str) -> GatewaySettings:
    """The settings in a YAML text. name: the file's name in errors. Raises ConfigError like
    `read_settings`."""
    return parse_settings(_document(text, name), name)


def settings_partly(path: Path) -> Partly[GatewaySettings]:
    """The settings in a YAML file as far as they are valid, and the problems. Raises ConfigError if
    it is not a file of settings."""
    return parse_partly(_document(read_text(path), str(path)), str(path))


def _document(text: str, name: str) -> Document:
    documents = read_yaml(text, name, once=True)
    if len(documents) > 1:
        raise ConfigError(f"{name}: has {len(documents)} documents; keep one")
    return documents[0] if documents else Document({}, {})


def parse_settings(document: Document, name: str) -> GatewaySettings:
    """The settings in a parsed document. Raises ConfigError with all problems."""
    settings, problems = parse_partly(document, name)
    if problems or settings is None:
        raise config_error([problem.said for problem in problems])
    return settings


def parse_partly(document: Document, name: str) -> Partly[GatewaySettings]:
    """The settings in a parsed document as far as they are valid, and the problems."""
    document = Document(_written_out(document.loaded), _lines(document))
    found = read_partly(document, GatewaySettings, name)
    if found.settings is None:
        return found
    wrong = [problem.path for problem in found.problems]
    more = []
    for path, message in name_problems(found.settings):
        if not any(_is_within(path, one) or _is_within(one, path) for one in wrong):
            parents = [path.rsplit(".", cut)[0] for cut in range(path.count(".") + 1)]
            line = next(
                (document.lines[parent] for parent in parents if parent in document.lines), None
            )
            where = name if line is None else f"{name}:{line}"
            more.append(Problem(path, f"{where}: {path}: {message}"))
    return found._replace(problems=(*found.problems, *more))


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def _written_out(loaded: Any) -> Any:
    """The document with short forms expanded: a target as its model alone, a model as its list of
    targets, a provider as its key or its address, keys as one."""
    if not isinstance(loaded, dict):
        return loaded
    found = dict(loaded)
    models = found.get("models")
    if isinstance(models, dict):
        found["models"] = {name: _model(one) for name, one in models.items()}
    providers = found.get("providers")
    if isinstance(providers, dict):
        found["providers"] = {name: _provider(one) for name, one in providers.items()}
    former = found.get("drop_unsupported")
    if isinstance(former, bool):
        found["drop_unsupported"] = "drop" if former else "drop_hints"
    if "guardrails" in found:
        found["guardrails"] = guardrails_named(found["guardrails"])
    if "prompts" in found:
        found["prompts"] = prompts_named(found["prompts"])
    return found


def _lines(document: Document) -> dict[str, int]:
    """Lines by path, with the paths that short forms have once they are expanded."""
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
    if isinstance(value, list) and not any(_has_weight(target) for target in value):
        value = {"targets": value, "strategy": "ordered"}
    elif isinstance(value, str | list):
        value = {"targets": value}
    if not isinstance(value, dict):
        return value
    if "targets" in value:
        value = {**value, "targets": written_targets(value["targets"])}
    return written_out(written_traffic(value))


def _has_weight(target: Any) -> bool:
    return isinstance(target, dict) and "weight" in target


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
