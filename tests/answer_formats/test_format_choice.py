"""A chat template's text decides the formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.answer_formats.formats import (
    CALL_ALIASES,
    CALL_FORMATS,
    REASONING_ALIASES,
    REASONING_FORMATS,
    call_format,
    choose_format,
    reasoning_format,
)
from headrace.errors import ConfigError

TEMPLATES = {
    "llama.cpp/CohereForAI-c4ai-command-r-plus-tool_use.jinja": ("command_r", None),
    "llama.cpp/CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja": ("command_r7b", "command"),
    "llama.cpp/ByteDance-Seed-OSS.jinja": ("seed_oss", "seed"),
    "llama.cpp/GLM-4.6.jinja": ("glm", "think"),
    "llama.cpp/Kimi-K2-Instruct.jinja": ("kimi_k2", None),
    "llama.cpp/Kimi-K2-Thinking.jinja": ("kimi_k2", "think"),
    "llama.cpp/Mistral-Small-3.2-24B-Instruct-2506.jinja": ("mistral", None),
    "llama.cpp/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja": ("qwen3_coder", "think"),
    "llama.cpp/NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja": ("hermes", None),
    "llama.cpp/Qwen-QwQ-32B.jinja": ("hermes", "think"),
    "llama.cpp/Qwen-Qwen2.5-7B-Instruct.jinja": ("hermes", None),
    "llama.cpp/Qwen-Qwen3-0.6B.jinja": ("hermes", "think"),
    "llama.cpp/Apertus-8B-Instruct.jinja": ("apertus", "apertus"),
    "llama.cpp/GigaChat3.1-10B-A1.8B.jinja": ("gigachat3", None),
    "llama.cpp/deepseek-ai-DeepSeek-V3.2.jinja": ("dsml", "think"),
    "llama.cpp/deepseek-ai-DeepSeek-V4.jinja": ("dsml", "think"),
    "llama.cpp/google-gemma-4-31B-it.jinja": ("gemma4", "gemma4"),
    "llama.cpp/meetkai-functionary-medium-v3.1.jinja": ("functionary_v3_1", None),
    "llama.cpp/meetkai-functionary-medium-v3.2.jinja": ("functionary_v3_2", None),
    "llama.cpp/Qwen3-Coder.jinja": ("qwen3_coder", None),
    "llama.cpp/deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja": ("deepseek", "think"),
    "llama.cpp/deepseek-ai-DeepSeek-V3.1.jinja": ("deepseek", "think"),
    "llama.cpp/fireworks-ai-llama-3-firefunction-v2.jinja": ("phi4", None),
    "llama.cpp/google-gemma-2-2b-it.jinja": (None, None),
    "llama.cpp/ibm-granite-granite-3.3-2B-Instruct.jinja": ("granite", "granite"),
    "llama.cpp/meta-llama-Llama-3.1-8B-Instruct.jinja": ("llama3_json", None),
    "llama.cpp/meta-llama-Llama-3.2-3B-Instruct.jinja": ("llama3_json", None),
    "llama.cpp/meta-llama-Llama-3.3-70B-Instruct.jinja": ("llama3_json", None),
    "llama.cpp/mistralai-Ministral-3-14B-Reasoning-2512.jinja": ("mistral", "mistral"),
    "llama.cpp/mistralai-Mistral-Nemo-Instruct-2407.jinja": ("mistral", None),
    "llama.cpp/openai-gpt-oss-120b.jinja": ("harmony", "harmony"),
    "llama.cpp/unsloth-Apriel-1.5.jinja": ("minimax", "apriel"),
}


def names(template: str) -> tuple[str | None, str | None]:
    chosen = choose_format(template)
    return (
        None if chosen.calls is None else chosen.calls.name,
        None if chosen.reasoning is None else chosen.reasoning.name,
    )


@pytest.mark.parametrize("path", TEMPLATES)
def test_published_templates_are_recognised(shared_assets: Path, path: str) -> None:
    template = (shared_assets / "chat-templates" / path).read_text(encoding="utf-8")
    assert names(template) == TEMPLATES[path]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("<|start_header_id|> <|python_tag|>", "llama3_json"),
        ("<|header_start|>assistant<|header_end|>", "llama4"),
        ("<function_calls>", "olmo3"),
        ("<|tool_call_start|>", "lfm2"),
        ("<minimax:tool_call>", "minimax_m2"),
        ("<|tool|>{{ tools }}<|/tool|>", "phi4"),
        ("{{ tools | tojson }}", "generic_json"),
        ("{{ messages }}", None),
    ],
)
def test_marks_decide(template: str, expected: str | None) -> None:
    assert names(template)[0] == expected


VLLM_TOOL_PARSERS = [
    "apertus",
    "cohere_command3",
    "cohere_command4",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "dots",
    "ernie45",
    "functiongemma",
    "gemma4",
    "gigachat3",
    "glm45",
    "glm47",
    "granite",
    "granite-20b-fc",
    "granite4",
    "hermes",
    "hunyuan_a13b",
    "hy_v3",
    "hy_v4",
    "inkling",
    "internlm",
    "jamba",
    "k2_horizon",
    "kimi_k2",
    "kimi_k3",
    "lfm2",
    "ling3",
    "llama3_json",
    "llama4_json",
    "llama4_pythonic",
    "longcat",
    "mimo",
    "minicpm5",
    "minimax_m2",
    "minimax_m3",
    "mistral",
    "olmo3",
    "openai",
    "phi4_mini_json",
    "plamo3",
    "poolside_v1",
    "pythonic",
    "qwen3_coder",
    "qwen3_json",
    "qwen3_xml",
    "seed_oss",
    "step3",
    "step3p5",
    "step5",
    "xlam",
]
VLLM_REASONING_PARSERS = [
    "cohere_command3",
    "cohere_command4",
    "deepseek_r1",
    "deepseek_v3",
    "deepseek_v4",
    "deepseek_v41",
    "ernie45",
    "gemma4",
    "glm45",
    "glm47",
    "granite",
    "granite_thinking_parser",
    "holo2",
    "hunyuan_a13b",
    "hy_v3",
    "hy_v4",
    "inkling",
    "k2_horizon",
    "kimi_k2",
    "kimi_k3",
    "ling3",
    "mimo",
    "minicpmv",
    "minimax_m2",
    "minimax_m3",
    "mistral",
    "nemotron_v3",
    "olmo3",
    "openai_gptoss",
    "plamo3",
    "poolside_v1",
    "qwen3",
    "seed_oss",
    "step3",
    "step3p5",
    "step5",
]
"""The choices of vLLM 0.33, without those that docs/tools.md names as not there."""


@pytest.mark.parametrize("name", VLLM_TOOL_PARSERS)
def test_names_of_tool_parsers_elsewhere_are_taken(name: str) -> None:
    assert call_format(name) in CALL_FORMATS


@pytest.mark.parametrize("name", VLLM_REASONING_PARSERS)
def test_names_of_reasoning_parsers_elsewhere_are_taken(name: str) -> None:
    assert reasoning_format(name) in REASONING_FORMATS


def test_aliases_are_names_of_formats_and_hide_none() -> None:
    for aliases, known in ((CALL_ALIASES, CALL_FORMATS), (REASONING_ALIASES, REASONING_FORMATS)):
        names = {format.name for format in known}
        assert set(aliases.values()) <= names
        assert not aliases.keys() & names


def test_formats_are_found_by_their_names() -> None:
    assert [call_format(known.name) for known in CALL_FORMATS] == list(CALL_FORMATS)
    assert [reasoning_format(known.name) for known in REASONING_FORMATS] == list(REASONING_FORMATS)
    with pytest.raises(ConfigError, match="tool_call_parser: 'hermis' is unknown; take one of"):
        call_format("hermis")
    with pytest.raises(ConfigError, match="reasoning_parser: 'thinks' is unknown; take one of"):
        reasoning_format("thinks")
