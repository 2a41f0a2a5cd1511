"""Whether a value satisfies a JSON schema that a client sent."""

from __future__ import annotations

from typing import Any

import msgspec


def fits(text: str, schema: dict[str, Any] | None) -> bool:
    """Whether `text` is JSON that satisfies `schema`; None stands for any object.

    A schema that is invalid or refers elsewhere allows all JSON: the provider was given it too and
    is the one to refuse it. So does every schema if the extra `guardrails` is not installed.
    """
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    if schema is None:
        return isinstance(value, dict)
    if not schema:
        return True
    try:
        import jsonschema_rs
    except ImportError:
        return True
    try:
        # Nothing is fetched for a client's schema, and none of its patterns takes long.
        validator = jsonschema_rs.validator_for(
            schema, pattern_options=jsonschema_rs.RegexOptions(), offline=True
        )
        return validator.is_valid(value)
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError):
        return True
