"""Requests with side effects at the provider: sent twice, they happen twice."""

from __future__ import annotations

from headrace.protocol.json_object import JsonObject

# Tools that run at the client. Anthropic's names of these carry dates: bash_20250124.
_CLIENTS_TOOLS = ("function", "custom")
_CLIENTS_PREFIXES = ("bash_", "text_editor_", "computer_", "memory_")
# Body fields that make a provider do or keep something.
_DOES = ("background", "conversation", "container", "mcp_servers", "web_search_options", "plugins")


def acts_at_provider(body: JsonObject) -> bool:
    """Whether the provider runs tools, keeps a conversation or answers later. Unknown values count
    as if it did."""
    if any(name in body and body.decoded(name) not in (None, False, []) for name in _DOES):
        return True
    tools = body.decoded("tools") if "tools" in body else None
    if tools is None:
        return False
    return not isinstance(tools, list) or not all(_is_clients(tool) for tool in tools)


def _is_clients(tool: object) -> bool:
    if not isinstance(tool, dict):
        return False
    kind = tool.get("type", "function")
    if not isinstance(kind, str):
        return False
    return kind in _CLIENTS_TOOLS or kind.startswith(_CLIENTS_PREFIXES)
