"""Tools of a chat: read from a file, and the results of calls, which the person types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.cli.chat.conversation import Call, Message
from headrace.cli.chat.input import CANCEL, Entry, command_of
from headrace.cli.notes import note
from headrace.cli.structured import json_source
from headrace.errors import ConfigError, RequestError

Tool = dict[str, Any]
"""As in OpenAI's API: {"type": "function", "function": {name, description, parameters}}."""


def read_tools(source: str, flag: str) -> list[Tool]:
    """The tools in a file, or in JSON itself, as `json_source` has it; one may stand alone.

    Raises ConfigError, naming `flag`, where they cannot be read or are not tools.
    """
    found = json_source(source, flag)
    return checked([found] if isinstance(found, dict) else found, flag)


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
    calls: Sequence[Call], read_result: Callable[[str], Entry], *, show: bool
) -> list[Message] | None:
    """The results of calls as messages, in their order; None where the person leaves.

    read_result: what the person types for a prompt. show: show each call before. An empty line then
    leaves, and a command is no result; otherwise both are, and only /cancel leaves.
    """
    results = []
    for index, call in enumerate(calls):
        if show:
            note(f"{call.name}({call.arguments})", "yellow")
            if not index:
                note(f"(type what it returned; an empty line or /{CANCEL} drops the message)")
        typed = _result(call, read_result, show=show)
        if typed is None:
            return None
        results.append(Message("tool", typed, tool_call_id=call.id))
    return results


def _result(call: Call, read_result: Callable[[str], Entry], *, show: bool) -> str | None:
    while True:  # ends: each round has read a line
        entry = read_result(f"result of {call.name}> " if show else "")
        command = command_of(entry)
        if command is not None and command.name == CANCEL:
            return None
        if show and not entry.text and not entry.is_block:
            return None
        if command is None or not show:
            return entry.text
        note(
            f"headrace: /{command.name} is a command and no result of {call.name}; /{CANCEL} drops "
            'the message, and """ before and behind a text makes it a result',
            "red",
        )
