"""Whether a value is as a JSON schema says. The schemas are clients'."""

from __future__ import annotations

from typing import Any

import msgspec


def fits(text: str, schema: dict[str, Any] | None) -> bool:
    """Whether `text` is JSON that `schema` allows; None allows any object.

    A schema that is none itself, or that points elsewhere, allows all JSON: the provider was given
    it too and is the one to say so. So does every schema where the extra `guardrails` is missing.
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
        # Nothing is fetched for a client's schema, and no pattern of it takes long.
        validator = jsonschema_rs.validator_for(
            schema, pattern_options=jsonschema_rs.RegexOptions(), offline=True
        )
        return validator.is_valid(value)
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError):
        return True
