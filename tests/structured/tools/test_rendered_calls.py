"""Calls as published templates render them are texts of the grammar: of the known format's, and of
that of the format which is derived from the template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.answer_formats.derivation.derive import derive_format
from headrace.answer_formats.formats import AnswerFormat, choose_format
from headrace.structured.tools.call_grammar import CallableTool, tool_call_grammar
from headrace.text import ChatTemplate
from tests.answer_formats.templates import answered, published, renderer
from tests.structured.matching import Language
from tests.text.test_chat_template import noon

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Look it up.",
                                         "parameters": SCHEMA}}  # fmt: skip
CALL = {"name": "get_weather", "arguments": {"city": "Zürich 3", "days": 3}}
TEMPLATES = (
    "ByteDance-Seed-OSS", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "GLM-4.6",
    "moonshotai-Kimi-K2", "Mistral-Small-3.2-24B-Instruct-2506",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "Qwen3-Coder",
    "deepseek-ai-DeepSeek-V3.1", "fireworks-ai-llama-3-firefunction-v2", "llama-cpp-deepseek-r1",
    "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct",
    "mistralai-Mistral-Nemo-Instruct-2407", "openai-gpt-oss-120b", "unsloth-Apriel-1.5",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_rendered_call_is_a_text_of_the_grammar(shared_assets: Path, name: str) -> None:
    source = (shared_assets / "chat-templates" / "llama.cpp" / f"{name}.jinja").read_text("utf-8")
    template = ChatTemplate(source, bos_token="<BOS>", eos_token="<EOS>", clock=noon)
    user: dict[str, Any] = {"role": "user", "content": "The weather?"}
    call = {"role": "assistant", "content": "",
            "tool_calls": [{"id": "abcdefghi", "type": "function", "function": CALL}]}  # fmt: skip
    rendered = template.render(
        [user, call], tools=[TOOL], add_generation_prompt=False, functions="[]", datetime="now"
    )
    format = choose_format(source)
    tool = CallableTool(name="get_weather", parameters=SCHEMA)
    grammar = tool_call_grammar(
        AnswerFormat(format.calls), [tool], choice="required", parallel=False, opened=False,
        special={},
    )  # fmt: skip
    language = Language(grammar)
    at = rendered.rindex("get_weather")
    starts = range(max(0, at - 80), at + 1)
    ends = range(at, len(rendered) + 1)
    assert any(language.has(rendered[start:end]) for start in starts for end in ends), rendered[
        at - 100 :
    ]


PLAIN: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "get_weather": ({"city": "Oslo"}, SCHEMA),
    "get_time": ({"zone": "UTC"}, {"properties": {"zone": {"type": "string"}}}),
}
WITHOUT_LAYOUT = {
    "BareKeyCalls": "values are neither JSON nor texts between tags",
    "JsonCalls": "the name is the key of the arguments",
    "PythonCalls": "the template quotes strings as Python does",
    "TaggedCalls": "a parameter's mark says of which type it is",
}


@pytest.mark.long
def test_what_a_template_renders_is_a_text_of_the_format_derived_from_it(
    shared_assets: Path,
) -> None:
    num_held, without = 0, set()
    failures: dict[str, str] = {}
    for name, source in published(shared_assets):
        render = renderer(source)
        format = derive_format(render)
        if format is None:
            continue
        if not format.layouts:
            assert isinstance(format.syntax, tuple)
            without.add(type(format.syntax[0]).__name__)
            continue
        tools = [CallableTool(name=tool, parameters=schema) for tool, (_, schema) in PLAIN.items()]
        grammar = tool_call_grammar(
            AnswerFormat(format),
            tools,
            choice="required",
            parallel=True,
            opened=False,
            special={},
        )
        language = Language(grammar)
        for count in (1, 2):
            calls = [(tool, arguments) for tool, (arguments, _) in PLAIN.items()][:count]
            functions = [
                {"name": tool, "description": "A tool.", "parameters": {"required": [], **schema}}
                for tool, (_, schema) in PLAIN.items()
            ]
            text = answered(render, calls, functions)
            if text is None:
                continue
            # The end of its turn is not part of the answer, and some templates write it here.
            if not any(language.has(text[:end]) for end in range(len(text), 0, -1)):
                failures[f"{name} x{count}"] = text
            num_held += 1
    assert failures == {}
    assert without == WITHOUT_LAYOUT.keys()
    assert num_held >= 110
