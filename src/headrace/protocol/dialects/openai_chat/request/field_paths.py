"""Where clients of OpenAI's chat completions, and of the older completions, write the fields of a
neutral call."""

from __future__ import annotations

from typing import Final

from headrace.protocol.neutral.losses import FieldPaths

_CACHE = ("$..cache_control", "$..prompt_cache_breakpoint")
_FORM = "response_format.json_schema"

FIELD_PATHS: Final[FieldPaths] = {
    "cache": _CACHE,
    "cache.lifetime": ("$..ttl",),
    "choices": ("n",),
    "instructions": ("messages",),
    "instructions.cache": _CACHE,
    "max_tokens": ("max_completion_tokens", "max_tokens"),
    "messages": ("messages", "prompt"),
    "messages.audio": ("messages..input_audio", "messages..audio_url"),
    "messages.cache": _CACHE,
    "messages.detail": ("messages..detail",),
    "messages.document": ("messages..file",),
    "messages.image": ("messages..image_url", "messages..images"),
    "messages.name": ("messages[*].name",),
    "messages.role": ("messages[*].role",),
    "messages.system": ("messages[*].role",),
    "messages.title": ("messages..filename",),
    "messages.video": ("messages..video_url",),
    "output": ("response_format",),
    "output.description": (f"{_FORM}.description",),
    "output.schema": (f"{_FORM}.schema", "response_format"),
    "parallel_tool_calls": ("parallel_tool_calls", "functions"),
    "reasoning": ("reasoning_effort", "reasoning", "thinking"),
    "reasoning.adaptive": ("thinking.type",),
    "reasoning.budget_tokens": ("reasoning.max_tokens", "thinking.budget_tokens"),
    "reasoning.effort": (
        "reasoning_effort",
        "reasoning.effort",
        "reasoning.enabled",
        "thinking.type",
    ),
    "reasoning.shown": ("reasoning.exclude",),
    "tool_choice": ("tool_choice", "function_call"),
    "tools": ("tools", "functions"),
    "tools.cache": _CACHE,
    "tools.strict": ("tools[*].function.strict", "functions[*].strict"),
}
