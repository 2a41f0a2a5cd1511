"""The tools of a request and of an answer, by name."""

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
        named = plugin.get("id") if isinstance(plugin, dict) else None
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
            waiting += (one[name] for name in ("tools", "allowed_tools") if name in one)


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


def _names(tool: Any) -> Iterator[str]:
    if not isinstance(tool, dict):
        return
    inner = next((tool[one] for one in ("function", "custom") if one in tool), tool)
    named = inner.get("name") if isinstance(inner, dict) else None
    if isinstance(named, str) and named:
        yield named
    typed = tool.get("type")
    if isinstance(typed, str) and typed not in _WITHOUT_NAME:
        yield typed
    label = tool.get("server_label")
    if isinstance(label, str) and label:
        yield label
