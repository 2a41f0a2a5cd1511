"""Tools of a chat: read from a file, and the results of calls, which the person types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.cli.chat.conversation import Call, Message
from headrace.cli.notes import note
from headrace.cli.structured import json_source
from headrace.errors import ConfigError, RequestError

Tool = dict[str, Any]
"""As in OpenAI's API: {"type": "function", "function": {name, description, parameters}}."""


def read_tools(source: str, flag: str) -> list[Tool]:
    """The tools in a file, or in JSON itself where it begins with a bracket.

    Raises ConfigError, naming `flag`, where they cannot be read or are not tools.
    """
    return checked(json_source(source, "[", flag), flag)


def checked(tools: object, flag: str) -> list[Tool]:
    """Tools that can be offered to a model. Raises ConfigError, naming `flag`, for others."""
    from headrace.offline.chat import ChatOptions

    try:
        ChatOptions.of(tools)
    except RequestError as error:
        raise ConfigError(f"{flag}: {error}") from None
    if not isinstance(tools, list) or not tools:
        raise ConfigError(f'{flag}: it must be a list: [{{"type": "function", "function": ...}}]')
    return tools


def names(tools: Sequence[Tool]) -> str:
    """For people."""
    return ", ".join(tool["function"]["name"] for tool in tools) or "none"


def ask_results(
    calls: Sequence[Call], read_result: Callable[[str], str], *, show: bool
) -> list[Message]:
    """The results of calls as messages, in their order.

    read_result: the text that the person types for a prompt. show: show each call before.
    """
    results = []
    for call in calls:
        if show:
            note(f"{call.name}({call.arguments})", "yellow")
        typed = read_result(f"result of {call.name}> " if show else "")
        results.append(Message("tool", typed, tool_call_id=call.id))
    return results
