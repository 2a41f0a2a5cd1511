"""Fields of message parts that neither Cohere nor Mistral can express."""

from __future__ import annotations

from headrace.protocol.neutral.part import Media, Part, Text, ToolCall, ToolResult

_NAMES = ((Text, "text"), (Media, "media"), (ToolCall, "tool_calls"))


def note_unsupported(part: Part, dropped: dict[str, None]) -> None:
    """Puts into `dropped` a mark for a cache and fields that only another vendor knows."""
    if isinstance(part, Text | Media | ToolCall | ToolResult) and part.cache is not None:
        dropped["messages.cache"] = None
    if isinstance(part, Text | Media | ToolCall) and part.extra:
        kind = next(name for part_type, name in _NAMES if isinstance(part, part_type))
        dropped |= {f"messages.{kind}.{name}": None for name in part.extra}
