"""The settings in force, as the admin page may show them: without what is secret.

What a type says is secret is left out, whatever it is called; so is what a name says is one, since
a setting may be added without that word. References (`env:NAME`, `file:PATH`) are shown: they say
where a secret is and not what it is.
"""

from __future__ import annotations

import re
import typing
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from headrace.gateway.settings.secret import is_plain

HIDDEN = "(hidden)"
_SECRET_NAMES = re.compile(
    r"(^|_)(key|keys|secret|password|passwd|token|authorization|credentials|dsn|headers|webhook)"
    r"(_|$)|sha256"
)
# Named settings whose names are people's own words (`keys: {ci: ...}`) hold what they hold.
_NOT_SECRET = frozenset({"require_key"})


def shown_settings(settings: msgspec.Struct) -> dict[str, Any]:
    """The settings by name, as in the file."""
    return _struct(settings)


def _struct(value: msgspec.Struct) -> dict[str, Any]:
    hints = typing.get_type_hints(type(value), include_extras=True)
    found = {}
    for field in msgspec.structs.fields(value):
        one = getattr(value, field.name)
        secret = _says_secret(hints[field.name]) or (
            field.name not in _NOT_SECRET and _SECRET_NAMES.search(field.name) is not None
        )
        found[field.encode_name] = _value(one, secret=secret)
    return found


def _value(value: Any, *, secret: bool) -> Any:
    if isinstance(value, msgspec.Struct):
        return _struct(value)
    if isinstance(value, dict):
        return {str(name): _value(one, secret=secret) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_value(one, secret=secret) for one in value]
    if isinstance(value, str):
        if secret:
            return HIDDEN if is_plain(value) else value
        return _without_password(value)
    return value


def _says_secret(hint: Any) -> bool:
    """Whether a type has `Meta(extra={"secret": True})` somewhere in it, but not within another
    struct."""
    if isinstance(hint, msgspec.Meta):
        return bool((hint.extra or {}).get("secret"))
    metadata = getattr(hint, "__metadata__", ())
    return any(_says_secret(one) for one in (*typing.get_args(hint), *metadata))


def _without_password(text: str) -> str:
    """An address without a user, a password and a query, which tokens are put into."""
    if "://" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return HIDDEN
    user, mark, host = parts.netloc.rpartition("@")
    return urlunsplit(
        parts._replace(
            netloc=f"{HIDDEN if user else ''}{mark}{host}", query=HIDDEN if parts.query else ""
        )
    )
