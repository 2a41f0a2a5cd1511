"""Where clients of the Messages API write the fields of a neutral call."""

from __future__ import annotations

from typing import Final

from headrace.protocol.neutral.losses import FieldPaths

_CACHE = ("$..cache_control",)

FIELD_PATHS: Final[FieldPaths] = {
    "cache": _CACHE,
    "cache.lifetime": ("$..ttl",),
    "extra.betas": ("anthropic-beta",),
    "instructions": ("system",),
    "instructions.cache": _CACHE,
    "messages.cache": _CACHE,
    "messages.is_error": ("messages..is_error",),
    "messages.role": ("messages[*].role",),
    "messages.system": ("messages[*].role",),
    "messages.title": ("messages..title",),
    "output": ("output_config.format", "output_format"),
    "output.schema": ("output_config.format.schema", "output_format.schema"),
    "parallel_tool_calls": ("tool_choice.disable_parallel_tool_use",),
    "reasoning": ("thinking", "output_config.effort"),
    "reasoning.adaptive": ("thinking.type",),
    "reasoning.budget_tokens": ("thinking.budget_tokens", "thinking.type"),
    "reasoning.effort": ("output_config.effort", "thinking.type"),
    "reasoning.shown": ("thinking.display",),
    "stop": ("stop_sequences",),
    "tools.cache": _CACHE,
    "tools.name": ("tools[*].name",),
    "tools.parameters": ("tools[*].input_schema",),
    "tools.strict": ("tools[*].strict",),
    "user": ("metadata.user_id",),
}
