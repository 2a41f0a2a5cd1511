"""Guardrails of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError
from headrace.gateway.guards.guard import Finder, Guard, Look, Side
from headrace.gateway.guards.guardrails import Guardrails
from headrace.gateway.guards.tool_rules import ToolRules
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.guards import GuardrailSettings
from headrace.gateway.settings.secret import Sources, is_plain, read_secret
from headrace.gateway.upstream.request import request_bytes

_MOST_SCHEMA_BYTES = 2**20
_SIDES: dict[str, tuple[Side, ...]] = {
    "input": ("input",),
    "output": ("output",),
    "both": ("input", "output"),
}


def guardrails_of(
    settings: GatewaySettings, sources: Sources, wall_s: Callable[[], float]
) -> Guardrails | None:
    """The guardrails of the file; None if it has none. Raises ConfigError naming the guardrail."""
    if not settings.guardrails:
        return None
    guards = tuple(
        guard_of(name, one, sources, wall_s) for name, one in settings.guardrails.items()
    )
    of_models = {name: one.guardrails for name, one in settings.models.items() if one.guardrails}
    return Guardrails(guards, of_models)


def guard_of(
    name: str, settings: GuardrailSettings, sources: Sources, wall_s: Callable[[], float]
) -> Guard:
    """One guardrail. Raises ConfigError."""
    try:
        return Guard(
            name=name,
            on=frozenset(_SIDES[settings.on]),
            action=settings.action,
            roles=settings.roles,
            message=settings.message,
            restore=settings.restore,
            is_default=settings.default,
            blocks_on_error=settings.on_error == "block",
            finder=_finder(settings),
            look=_look(name, settings, sources, wall_s),
            tools=ToolRules(settings.allow, settings.deny)
            if settings.kind == "allowed_tools"
            else None,
            most_tokens=settings.max_tokens,
        )
    except ConfigError as error:
        raise ConfigError(f"guardrails.{name}: {error}") from error


def guardrail_warnings(settings: GatewaySettings) -> list[str]:
    """Settings that are valid but probably not intended."""
    warnings = []
    for name, one in settings.guardrails.items():
        where = f"guardrails.{name}"
        given = {f"headers.{header}": value for header, value in one.headers.items()}
        given |= {} if one.secret is None else {"secret": one.secret}
        warnings += [
            f"{where}.{field}: the secret is written into the file; write env:NAME or file:PATH "
            "instead"
            for field, value in given.items()
            if is_plain(value)
        ]
    return warnings


def _finder(settings: GuardrailSettings) -> Finder | None:
    if settings.kind == "regex":
        from headrace.gateway.guards.patterns import REDACTED, Patterns

        return Patterns(settings.patterns, settings.replacement or REDACTED, settings.window_chars)
    if settings.kind == "pii":
        from headrace.gateway.guards.personal_data import PersonalData

        return PersonalData(settings.kinds, settings.window_chars)
    return None


def _look(
    name: str, settings: GuardrailSettings, sources: Sources, wall_s: Callable[[], float]
) -> Look | None:
    if settings.kind == "json_schema":
        from headrace.gateway.guards.json_shape import JsonShape

        return JsonShape(_schema(settings.schema, sources.folder))
    if settings.kind == "python":
        from headrace.gateway.guards.python_function import PythonGuard, imported

        function = imported(settings.function or "", sources.folder)
        return PythonGuard(function, settings.timeout_s)
    if settings.kind == "webhook":
        return _webhook(name, settings, sources, wall_s)
    return None


def _schema(given: str | dict[str, Any] | None, folder: Path) -> Any:
    if not isinstance(given, str):
        return given
    path = folder / given
    text = read_text_file(path, "schema", _MOST_SCHEMA_BYTES)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"schema: {path} is not JSON: {error}") from None


def _webhook(
    name: str, settings: GuardrailSettings, sources: Sources, wall_s: Callable[[], float]
) -> Look:
    from headrace.gateway.alerts.webhook import read_receiver
    from headrace.gateway.guards.webhook import WebhookGuard

    try:
        receiver = read_receiver(settings.url or "")
    except ConfigError:
        raise ConfigError(
            "url: expected an address such as https://guard.example.com/check"
        ) from None
    headers = [(one, read_secret(value, sources)) for one, value in settings.headers.items()]
    try:
        request_bytes("POST", receiver.origin, receiver.target, [(one, "") for one, _ in headers])
    except ValueError as error:
        raise ConfigError(f"headers: {error}") from None
    return WebhookGuard(
        name,
        receiver,
        headers,
        None if settings.secret is None else read_secret(settings.secret, sources),
        timeout_s=settings.timeout_s,
        wall_s=wall_s,
    )
