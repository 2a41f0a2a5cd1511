"""A chat template's text decides the formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.answer_formats.formats import (
    CALL_FORMATS,
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
    "llama.cpp/unsloth-Apriel-1.5.jinja": ("minimax", None),
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


def test_formats_are_found_by_their_names() -> None:
    assert [call_format(known.name) for known in CALL_FORMATS] == list(CALL_FORMATS)
    assert [reasoning_format(known.name) for known in REASONING_FORMATS] == list(REASONING_FORMATS)
    with pytest.raises(ConfigError, match="tool_call_parser: 'hermis' is unknown; take one of"):
        call_format("hermis")
    with pytest.raises(ConfigError, match="reasoning_parser: 'thinks' is unknown; take one of"):
        reasoning_format("thinks")
