"""The choice of the formats: by name, or by a chat template.

By name goes before all. Of a chat template the text decides where it has the marks of a known
format, since what is known of a format is more than a template shows. Else the format is derived
from what the template writes (derivation/), and where it writes nothing of use, calls are JSON.
"""

from __future__ import annotations

from typing import TypeVar

from headrace.answer_formats.call_formats.known_formats import CALL_FORMATS
from headrace.answer_formats.call_syntax import AnswerFormat, CallFormat, ReasoningFormat
from headrace.answer_formats.derivation.derive import Render, derive_format, derive_reasoning
from headrace.answer_formats.reasoning_formats import REASONING_FORMATS
from headrace.errors import ConfigError, shown

__all__ = [
    "CALL_ALIASES",
    "CALL_FORMATS",
    "REASONING_ALIASES",
    "REASONING_FORMATS",
    "AnswerFormat",
    "call_format",
    "choose_format",
    "reasoning_format",
]

_Format = TypeVar("_Format", CallFormat, ReasoningFormat)
GENERIC = "generic_json"

CALL_ALIASES = {
    "cohere_command3": "command_r7b",
    "cohere_command4": "command_r7b",
    "deepseek_v3": "deepseek",
    "deepseek_v31": "deepseek",
    "deepseek_v32": "dsml",
    "deepseek_v4": "dsml",
    "deepseek_v41": "dsml",
    "deepseekv3": "deepseek",
    "deepseekv31": "deepseek",
    "deepseekv32": "dsml",
    "ernie45": "hermes",
    "glm45": "glm",
    "glm47": "glm",
    "gpt-oss": "harmony",
    "granite-20b-fc": "granite_20b",
    "granite4": "hermes",
    "hunyuan_a13b": "minimax",
    "hy_v3": "hunyuan_v3",
    "hy_v4": "hunyuan_v3",
    "internlm": "internlm2",
    "jamba": "minimax",
    "ling3": "glm",
    "llama3": "llama3_json",
    "llama4_json": "llama3_json",
    "llama4_pythonic": "llama4",
    "mimo": "qwen3_coder",
    "minimax-m2": "minimax_m2",
    "openai": "harmony",
    "phi4_mini_json": "phi4",
    "poolside_v1": "glm",
    "qwen": "hermes",
    "qwen25": "hermes",
    "qwen3_json": "hermes",
    "qwen3_xml": "qwen3_coder",
    "step3p5": "qwen3_coder",
    "step5": "qwen3_coder",
}
"""Names that vLLM and SGLang give to formats which are here under another name."""

REASONING_ALIASES = {
    "cohere_command3": "command",
    "cohere_command4": "command",
    "deepseek-r1": "think_assumed",
    "deepseek-v3": "think",
    "deepseek_r1": "think_assumed",
    "deepseek_v3": "think",
    "deepseek_v4": "think",
    "deepseek_v41": "think",
    "ernie45": "granite",
    "glm45": "think",
    "glm47": "think",
    "gpt-oss": "harmony",
    "granite_thinking_parser": "granite",
    "holo2": "think_assumed",
    "hunyuan_a13b": "hunyuan",
    "hy_v3": "think",
    "hy_v4": "think",
    "kimi_k2": "think",
    "ling3": "think",
    "mimo": "think",
    "minicpmv": "think",
    "minimax_m2": "think_assumed",
    "nemotron_v3": "think_assumed",
    "olmo3": "think",
    "openai_gptoss": "harmony",
    "poolside_v1": "think",
    "qwen3": "think",
    "seed_oss": "seed",
    "step3": "think_assumed",
    "step3p5": "think_assumed",
    "step5": "think_assumed",
}
"""As CALL_ALIASES."""


def choose_format(template: str, render: Render | None = None) -> AnswerFormat:
    """The formats of a chat template.

    template: its text. render: what it makes of messages and tools, to derive the format of calls
    and of reasoning from where the text has no known marks; without it such calls are generic JSON.
    """
    calls = _first_fitting(CALL_FORMATS, template)
    reasoning = _first_fitting(REASONING_FORMATS, template)
    if render is not None and (calls is None or calls.name == GENERIC):
        calls = derive_format(render) or calls
    if render is not None and reasoning is None:
        reasoning = derive_reasoning(render)
    return AnswerFormat(calls, reasoning)


def _first_fitting(known: tuple[_Format, ...], template: str) -> _Format | None:
    return next(
        (
            format
            for format in known
            if any(all(text in template for text in texts) for texts in format.traits)
        ),
        None,
    )


def call_format(name: str) -> CallFormat:
    """The format of tool calls with a name or an alias. Raises ConfigError for another."""
    return _named(name, CALL_FORMATS, CALL_ALIASES, "tool_call_parser")


def reasoning_format(name: str) -> ReasoningFormat:
    """The format of reasoning with a name or an alias. Raises ConfigError for another."""
    return _named(name, REASONING_FORMATS, REASONING_ALIASES, "reasoning_parser")


def _named(name: str, known: tuple[_Format, ...], aliases: dict[str, str], param: str) -> _Format:
    """The format with a name. Raises ConfigError with all names for another."""
    names: dict[str, _Format] = {format.name: format for format in known}
    found = names.get(aliases.get(name, name))
    if found is None:
        listed = ", ".join(sorted({*names, *aliases}))
        raise ConfigError(f"{param}: {shown(name)} is unknown; take one of {listed}")
    return found
