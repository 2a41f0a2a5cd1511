"""Fields of a client's request: each is what it has to be, or RequestError says what it is."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from headrace.errors import RequestError, shown

Json = dict[str, Any]


def refuse(path: str, problem: str) -> NoReturn:
    """The error that every check here raises."""
    raise RequestError(f"{path}: {problem}", param=path)


def want_text(value: object, path: str) -> str:
    """A string."""
    if isinstance(value, str):
        return value
    refuse(path, f"{shown(value)} is not a string; send one")


def want_name(value: object, path: str) -> str:
    """A string that is not empty."""
    if want_text(value, path):
        return str(value)
    refuse(path, "'' is empty; send at least one character")


def want_object(value: object, path: str) -> Json:
    """A JSON object."""
    if isinstance(value, dict):
        return value
    refuse(path, f"{shown(value)} is not an object; send one")


def want_list(value: object, path: str) -> list[Any]:
    """A JSON array."""
    if isinstance(value, list):
        return value
    refuse(path, f"{shown(value)} is not a list; send one")


def want_flag(value: object, path: str) -> bool:
    """true or false."""
    if isinstance(value, bool):
        return value
    refuse(path, f"{shown(value)} is neither true nor false; send one of them")


def want_count(value: object, path: str, *, least: int) -> int:
    """An integer of at least `least`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(path, f"{shown(value)} is not an integer; send one")
    if value < least:
        refuse(path, f"{shown(value)} is too low; send {least} or more")
    if value > 2**53:
        refuse(path, f"{shown(value)} is too high; send {2**53} or less")
    return value


def want_share(value: object, path: str) -> float:
    """A number from 0 to 1, as the API's temperature and top_p are."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        refuse(path, f"{shown(value)} is not a number; send one from 0 to 1")
    if not 0 <= value <= 1:
        refuse(path, f"{shown(value)} is out of range; send a number from 0 to 1")
    return float(value)


def want_one_of(value: object, path: str, allowed: tuple[str, ...]) -> str:
    """The value, which must be one of some strings."""
    if isinstance(value, str) and value in allowed:
        return value
    refuse(path, f"{shown(value)} is not known; send one of {', '.join(allowed)}")
