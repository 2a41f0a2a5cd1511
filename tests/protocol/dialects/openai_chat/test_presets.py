"""Variants are data."""

from __future__ import annotations

import msgspec
import pytest

from headrace.protocol.dialects.openai_chat import OPENAI, PRESETS, SAMPLERS, Variant, azure
from headrace.protocol.neutral.call import ChatCall

_CONTENT = {"strict", "json", "json_schema", "hosted_tools", "names", "parts"}
_CONTENT |= {"image", "audio", "document", "video", "made_images"}


def test_a_variant_is_written_as_data_and_read_again() -> None:
    for variant in (*PRESETS.values(), azure("2024-10-21")):
        assert msgspec.convert(msgspec.to_builtins(variant), Variant) == variant
        assert (
            msgspec.convert(msgspec.json.decode(msgspec.json.encode(variant)), Variant) == variant
        )


def test_a_row_says_what_differs() -> None:
    row = {"name": "mine", "max_tokens_field": "max_completion_tokens", "takes": ["tools"]}
    variant = msgspec.convert(row, Variant)
    assert variant.takes == {"tools"} and variant.chat_path == "/chat/completions"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "mine", "effort_style": "shouting"}, Variant)


def test_names_that_variants_take_are_names() -> None:
    fields = set(ChatCall.__struct_fields__)
    for variant in PRESETS.values():
        assert variant.takes <= fields | _CONTENT, variant.name
    assert not OPENAI & SAMPLERS


def test_presets_that_must_be_there() -> None:
    wanted = "openai azure groq deepseek openrouter xai together fireworks cerebras vllm llama.cpp"
    assert PRESETS.keys() >= {*wanted.split(), "ollama", "generic"}
    assert all(name == variant.name for name, variant in PRESETS.items())
