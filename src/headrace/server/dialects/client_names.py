"""Errors about our own request in the names of the client that sent another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.errors import RequestError
from headrace.protocol.neutral.losses import FieldPaths

_NEUTRAL = {
    "max_completion_tokens": "max_tokens",
    "n": "choices",
    "reasoning_effort": "reasoning.effort",
    "response_format": "output",
    "thinking_token_budget": "reasoning.budget_tokens",
}
"""Fields of our own request that a neutral call names otherwise."""

_PLACE = re.compile(r"(?P<head>[^.\[]+)(?P<tool>(?<=\Atools)\[\d+\])?")


@contextmanager
def client_names(paths: FieldPaths, has: Callable[[str], bool]) -> Iterator[None]:
    """Within it a RequestError names the client's field, where it is another than ours.

    Of a place within a field the field is named, and which tool it is: other numbers and names
    would not be the client's. paths: the client's names by those of a neutral call; of several the
    first that `has` finds in the body.
    """
    try:
        yield
    except RequestError as error:
        found = None if error.param is None else _PLACE.match(error.param)
        if error.param is None or found is None:
            raise
        neutral = _NEUTRAL.get(found["head"], found["head"])
        known = paths.get(neutral, (neutral,))
        told = next((path for path in known if has(path)), known[0]) + (found["tool"] or "")
        message = str(error)
        if message.startswith(error.param):
            error.args = (told + message.removeprefix(error.param),)
        error.param = told
        raise
