"""The tools of a request and of an answer, by name.

A request's fields are told without regard to case, as readers in Go do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# What a hosted tool is called where it has no name of its own: its type.
_WITHOUT_NAME = (
    "function", "custom", "tool", "allowed_tools", "auto", "any", "none", "required", "url",
)  # fmt: skip
_CALLS = ("tool_use", "function_call", "custom_tool_call", "server_tool_use", "mcp_tool_use")


def requested_tools(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Offered ones and a forced choice; hosted tools and MCP servers by name and by type, plugins
    by id."""
    found: dict[str, None] = {}
    for name in ("tools", "functions", "mcp_servers", "tool_choice", "function_call"):
        found |= dict.fromkeys(_listed(body.get(name)))
    plugins = body.get("plugins")
    for plugin in plugins if isinstance(plugins, list) else ():
        for named in _under(plugin, "id"):
            if isinstance(named, str) and named:
                found[named] = None
    if body.get("web_search_options") is not None:
        found["web_search"] = None
    return tuple(found)


def _listed(value: Any) -> Iterator[str]:
    """Names of tools, also of those that stand within others, as of a namespace."""
    waiting = [value]
    if isinstance(value, dict):  # in place of a list: nobody here knows how it is read
        waiting += value.values()
    for one in waiting:
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            yield from _names(one)
            waiting += _under(one, "tools", "allowed_tools")


def called_tools(value: Any) -> Iterator[str]:
    """Names in an answer, or in an event of a stream, wherever in it."""
    if isinstance(value, list):
        for one in value:
            yield from called_tools(one)
    elif isinstance(value, dict):
        typed = value.get("type")
        named = value.get("name")
        if typed in _CALLS and isinstance(named, str) and named:
            yield named
        elif isinstance(typed, str) and typed.endswith("_call"):
            yield typed.removesuffix("_call")
        for name in ("function", "custom", "function_call"):
            called = value.get(name)
            named = called.get("name") if isinstance(called, dict) else None
            if isinstance(named, str) and named:  # later pieces of a call have none, or ""
                yield named
        for name, one in value.items():
            if name not in ("arguments", "input"):
                yield from called_tools(one)


def _names(tool: dict[str, Any]) -> Iterator[str]:
    for inner in _under(tool, "function", "custom") or [tool]:
        for named in _under(inner, "name"):
            if isinstance(named, str) and named:
                yield named
    for typed in _under(tool, "type"):
        if isinstance(typed, str) and typed not in _WITHOUT_NAME:
            yield typed
    for label in _under(tool, "server_label"):
        if isinstance(label, str) and label:
            yield label


def _under(value: Any, *names: str) -> list[Any]:
    """What an object has under these names in any case; nothing of what is none."""
    if not isinstance(value, dict):
        return []
    return [one for name, one in value.items() if name in names or name.casefold() in names]
