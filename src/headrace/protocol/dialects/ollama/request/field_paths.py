"""Where clients of Ollama's API write the fields of a neutral call."""

from __future__ import annotations

from typing import Final

from headrace.protocol.neutral.losses import FieldPaths

_THINK = ("think",)

FIELD_PATHS: Final[FieldPaths] = {
    "frequency_penalty": ("options.frequency_penalty",),
    "instructions": ("system", "messages"),
    "max_tokens": ("options.num_predict",),
    "messages": ("messages", "prompt"),
    "messages.image": ("messages..images", "images"),
    "messages.role": ("messages[*].role",),
    "messages.system": ("messages[*].role",),
    "min_p": ("options.min_p",),
    "output": ("format",),
    "output.schema": ("format",),
    "presence_penalty": ("options.presence_penalty",),
    "reasoning": _THINK,
    "reasoning.adaptive": _THINK,
    "reasoning.budget_tokens": _THINK,
    "reasoning.effort": _THINK,
    "reasoning.shown": _THINK,
    "repetition_penalty": ("options.repeat_penalty",),
    "seed": ("options.seed",),
    "stop": ("options.stop",),
    "temperature": ("options.temperature",),
    "tools.name": ("tools[*].function.name",),
    "tools.parameters": ("tools[*].function.parameters",),
    "tools.strict": ("tools[*].function.strict",),
    "top_k": ("options.top_k",),
    "top_p": ("options.top_p",),
}
