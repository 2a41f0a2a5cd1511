"""Where clients of the Responses API write the fields of a neutral call."""

from __future__ import annotations

from typing import Final

from headrace.protocol.neutral.losses import FieldPaths

_CACHE = ("$..prompt_cache_breakpoint", "$..cache_control")

FIELD_PATHS: Final[FieldPaths] = {
    "cache": _CACHE,
    "cache.lifetime": ("$..ttl",),
    "extra.verbosity": ("text.verbosity",),
    "instructions": ("instructions", "input"),
    "instructions.cache": _CACHE,
    "logprobs": ("include",),
    "max_tokens": ("max_output_tokens",),
    "messages": ("input",),
    "messages.cache": _CACHE,
    "messages.detail": ("input..detail",),
    "messages.document": ('input..[?@.type=="input_file"]',),
    "messages.image": ('input..[?@.type=="input_image"]',),
    "messages.role": ("input[*].role",),
    "messages.system": ("input[*].role",),
    "messages.title": ("input..filename",),
    "output": ("text.format",),
    "output.description": ("text.format.description",),
    "output.schema": ("text.format.schema",),
    "reasoning.budget_tokens": ("reasoning.max_tokens",),
    "reasoning.shown": ("reasoning.summary",),
    "tools.cache": _CACHE,
    "tools.name": ("tools[*].name",),
    "tools.parameters": ("tools[*].parameters",),
    "tools.strict": ("tools[*].strict",),
}
