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

# Words of our own fields that may stand anywhere in a message. "n" is too short a word for that.
_WORDS = tuple(name for name in _NEUTRAL if "_" in name)
_TOOL = re.compile(r"tools(?P<place>\[\d+\])(?:\.function)?(?:\.(?P<leaf>\w+))?")
_HEAD = re.compile(r"[^.\[]+")


@contextmanager
def client_names(paths: FieldPaths, has: Callable[[str], bool]) -> Iterator[None]:
    """Within it a RequestError names the client's field, where it is another than ours.

    Of a place within a field the field is named, and of a tool which one it is and whether its name
    or its schema is at fault: other numbers and names would not be the client's. paths: the
    client's names by those of a neutral call; of several the first that `has` finds in the body.
    """
    try:
        yield
    except RequestError as error:
        if error.param is None:
            raise
        given, error.param = error.param, _told(error.param, paths, has)
        message = renamed(str(error), given, error.param)
        for word in _WORDS:
            message = renamed(message, word, _told(word, paths, has))
        error.args = (message,)
        raise


def _told(param: str, paths: FieldPaths, has: Callable[[str], bool]) -> str:
    """The client's name of our own field."""

    def known(neutral: str) -> str:
        found = paths.get(neutral, (neutral,))
        return next((path for path in found if has(path)), found[0])

    if tool := _TOOL.match(param):
        within = f"tools.{tool['leaf']}"
        path = known(within) if within in paths else f"{known('tools')}[*]"
        return path.replace("[*]", tool["place"])
    head = _HEAD.match(param)
    if head is None:
        return param
    return known(_NEUTRAL.get(head[0], head[0]))


def renamed(message: str, name: str, client_name: str) -> str:
    """A message with a field's name replaced, wherever that is a word of its own."""
    if name == client_name:
        return message
    return re.sub(rf"(?<![\w.\[]){re.escape(name)}(?![\w\[]|\.\w)", lambda _: client_name, message)
