"""A grammar of one tool's calls."""

from __future__ import annotations

from typing import Any

from headrace.answer_formats.formats import AnswerFormat, call_format
from headrace.structured.grammar import Grammar
from headrace.structured.tools.call_grammar import CallableTool, tool_call_grammar


def held(name: str, schema: dict[str, Any], **options: Any) -> Grammar:
    """Of exactly one call of f, in a format by its name."""
    tool = CallableTool(name="f", parameters=schema, param="tools[2].function", **options)
    return tool_call_grammar(
        AnswerFormat(call_format(name)), [tool], choice="required", parallel=False, opened=False,
        special={},
    )  # fmt: skip
