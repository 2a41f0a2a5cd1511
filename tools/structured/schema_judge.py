"""What a schema accepts by jsonschema-rs, which shares nothing with what writes the answers."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema_rs


class NotStrictError(ValueError):
    """A text that JSON readers may read in different ways, or not at all."""


class RepeatedError(NotStrictError):
    """A property is given twice."""


class SchemaJudge:
    """The values of a schema. ValueError where it is not a schema."""

    def __init__(self, schema: Any) -> None:
        self._validator = jsonschema_rs.validator_for(schema, validate_formats=True)

    def accepts(self, value: Any) -> bool:
        """Whether a value is valid."""
        return bool(self._validator.is_valid(value))

    def accepts_text(self, text: str) -> bool:
        """Whether a text is JSON of a valid value. Raises NotStrictError."""
        return self.accepts(strict_json(text))


def strict_json(text: str) -> Any:
    """The value of a text.

    Raises NotStrictError for what is not JSON, RepeatedError for a property given twice, and
    OverflowError for a number that no double has.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            raise RepeatedError(f"a property is given twice in {text[:200]}")
        return value

    def constant(name: str) -> Any:
        raise NotStrictError(f"{name} is not JSON")

    def finite(number: str) -> float:
        value = float(number)
        if math.isinf(value):
            raise OverflowError(f"{number} is beyond doubles")
        return value

    def whole(number: str) -> int:
        finite(number)
        return int(number)

    try:
        return json.loads(
            text,
            object_pairs_hook=once,
            parse_constant=constant,
            parse_float=finite,
            parse_int=whole,
        )
    except json.JSONDecodeError as error:
        raise NotStrictError(f"{error}: {text[:200]}") from None
