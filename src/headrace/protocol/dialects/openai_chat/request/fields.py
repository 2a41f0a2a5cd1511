"""Fields of a client's request: of the right type, or refused with their name."""

from __future__ import annotations

import math
from typing import Any

from headrace.errors import RequestError, shown


def refuse(param: str, value: object, wanted: str, *, code: str | None = None) -> RequestError:
    """The error for a field whose value is not what it must be."""
    return RequestError(f"{param}: {shown(value)} is not {wanted}", param=param, code=code)


class Fields:
    """The top-level fields of a body. Null and absent are the same; `left` is what nobody took."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.left = {name: value for name, value in body.items() if value is not None}

    def take(self, name: str) -> Any:
        """The field whatever it is, None if it is not there."""
        return self.left.pop(name, None)

    def string(self, name: str) -> str | None:
        """A string."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise refuse(name, value, "a string")
        return value

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise refuse(name, value, "true or false")
        return value

    def integer(self, name: str, least: int | None = None) -> int | None:
        """An integer; 3.0 is one too."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise refuse(name, value, "an integer")
        if least is not None and value < least:
            raise refuse(name, value, f"at least {least}")
        return value

    def number(
        self, name: str, least: float | None = None, most: float | None = None
    ) -> float | None:
        """A finite number between bounds that are allowed themselves."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refuse(name, value, "a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise refuse(name, value, "a finite number")
        if (least is not None and value < least) or (most is not None and value > most):
            wanted = f"at least {least:g}" if most is None else f"between {least:g} and {most:g}"
            raise refuse(name, value, wanted)
        return value

    def object(self, name: str) -> dict[str, Any] | None:
        """An object."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise refuse(name, value, "an object")
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of strings; one string alone is a list of one."""
        value = self.take(name)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise refuse(name, value, "a string or a list of strings")
        return tuple(value)
