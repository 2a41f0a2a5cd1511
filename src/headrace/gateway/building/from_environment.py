"""A provider's settings with values in place of the variables that they name.

Keys are not among them: those stay where they are until they are sent.
"""

from __future__ import annotations

import msgspec

from headrace.gateway.settings.provider import ProviderSettings
from headrace.gateway.settings.secret import Sources, from_variable

_OF_PROVIDER = ("base_url", "region", "api_version")
_WITHIN = {"google": ("project", "location"), "entra": ("tenant_id", "client_id", "authority")}


def with_variables(settings: ProviderSettings, sources: Sources) -> ProviderSettings:
    """The settings with `env:NAME` and `os.environ/NAME` replaced. Raises ConfigError naming
    setting and variable."""
    found = _read(settings, _OF_PROVIDER, sources, "")
    for name, fields in _WITHIN.items():
        inner = getattr(settings, name)
        if inner is not None:
            found[name] = msgspec.structs.replace(
                inner, **_read(inner, fields, sources, f"{name}.")
            )
    for name in ("headers", "address"):
        if given := getattr(settings, name):
            found[name] = {
                key: from_variable(text, sources, f"{name}.{key}") for key, text in given.items()
            }
    return msgspec.structs.replace(settings, **found) if found else settings


def _read(
    settings: msgspec.Struct, fields: tuple[str, ...], sources: Sources, where: str
) -> dict[str, object]:
    given = {field: getattr(settings, field) for field in fields}
    return {
        name: from_variable(text, sources, f"{where}{name}")
        for name, text in given.items()
        if text is not None
    }
