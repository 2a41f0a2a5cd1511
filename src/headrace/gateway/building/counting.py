"""The providers that can count tokens before a request is answered."""

from __future__ import annotations

from headrace.gateway.targets.counting import Counting
from headrace.protocol.neutral.dialect import ProviderSide

# Variants of engines that have vLLM's /tokenize.
_ENGINES = ("vllm", "headrace")


def counting_of(side: ProviderSide) -> Counting | None:
    """How a provider counts tokens; None if it cannot."""
    if side.name == "anthropic":
        return _of_anthropic(side)
    if side.name == "gemini":
        from headrace.protocol.dialects.gemini import GeminiProvider
        from headrace.protocol.dialects.gemini.count_tokens import GeminiTokenCounter

        assert isinstance(side, GeminiProvider)
        return Counting(GeminiTokenCounter(place=side.place))
    if side.name == "bedrock":
        from headrace.protocol.dialects.bedrock.count_tokens import BedrockTokenCounter

        return Counting(BedrockTokenCounter())
    if side.name == "openai-responses":
        return _of_responses()
    if side.name == "openai-chat":
        return _of_openai(side)
    return None


def _of_anthropic(side: ProviderSide) -> Counting:
    from headrace.protocol.dialects.anthropic import AnthropicProvider
    from headrace.protocol.dialects.anthropic.values import COUNT_PATH
    from headrace.protocol.dialects.anthropic.vertex import VertexAnthropicProvider

    assert isinstance(side, AnthropicProvider)
    on_vertex = isinstance(side, VertexAnthropicProvider)
    return Counting(side, {} if on_vertex else {"anthropic": COUNT_PATH})


def _of_responses() -> Counting:
    from headrace.protocol.dialects.openai_responses.count_tokens import (
        COUNT_PATH,
        ResponsesTokenCounter,
    )

    return Counting(ResponsesTokenCounter(), {"openai-responses": COUNT_PATH})


def _of_openai(side: ProviderSide) -> Counting | None:
    from headrace.protocol.dialects.openai_chat import OpenAIChatProvider

    assert isinstance(side, OpenAIChatProvider)
    if side.variant.name == "openai":
        return _of_responses()
    if side.variant.name not in _ENGINES:
        return None
    from headrace.protocol.dialects.openai_chat.tokenize import EngineTokenCounter

    return Counting(EngineTokenCounter(side.variant), at_root=True)
