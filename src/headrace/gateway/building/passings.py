"""Which clients' bodies a provider gets as they came: those of its own dialect."""

from __future__ import annotations

from headrace.gateway.targets.passing import EmbeddingPassing, Passing
from headrace.protocol.neutral.dialect import ProviderSide

_PATHS = {
    "openai-responses": "/responses",
    "anthropic": "/v1/messages",
}


def passings_of(
    dialect: str, side: ProviderSide, *, completions: bool, responses: bool = False
) -> dict[str, Passing]:
    """By the client's dialect. completions, responses: whether a provider of OpenAI's chat has its
    older completions, and its Responses API."""
    if dialect == "openai-chat":
        return _of_openai(side, completions=completions, responses=responses)
    if dialect == "anthropic":
        from headrace.protocol.dialects.anthropic.vertex import (
            VERTEX_EDITS,
            VertexAnthropicProvider,
        )

        if isinstance(side, VertexAnthropicProvider):
            place = side.place
            return {
                dialect: Passing(
                    lambda model, stream: place.path(model, stream=stream), VERTEX_EDITS
                )
            }
    if dialect == "ollama":
        from headrace.protocol.dialects.ollama.generate import GENERATE, GenerateReplies

        return {
            dialect: Passing(lambda model, stream: "/api/chat"),
            GENERATE: Passing(lambda model, stream: "/api/generate", replies=GenerateReplies()),
        }
    path = _PATHS.get(dialect)
    return {} if path is None else {dialect: Passing(lambda model, stream: path)}


def _of_openai(side: ProviderSide, *, completions: bool, responses: bool) -> dict[str, Passing]:
    from headrace.protocol.dialects.openai_chat import OpenAIChatProvider
    from headrace.protocol.dialects.openai_chat.request.write_call import path_for

    assert isinstance(side, OpenAIChatProvider)
    variant = side.variant
    found = {"openai-chat": Passing(lambda model, stream: path_for(variant.chat_path, model))}
    if completions:
        from headrace.protocol.dialects.openai_completions import DIALECT, REPLIES

        path = variant.completions_path
        found[DIALECT] = Passing(lambda model, stream: path_for(path, model), replies=REPLIES)
    if responses:
        from headrace.protocol.dialects.openai_responses import PROVIDER

        found[PROVIDER.name] = Passing(
            lambda model, stream: _PATHS["openai-responses"], replies=PROVIDER
        )
    return found


def embedding_passings_of(dialect: str, side: ProviderSide) -> dict[str, EmbeddingPassing]:
    """The same of embeddings."""
    if dialect == "openai-chat":
        from headrace.protocol.dialects.openai_chat import OpenAIChatProvider
        from headrace.protocol.dialects.openai_chat.embeddings import read_embedding_usage
        from headrace.protocol.dialects.openai_chat.request.write_call import path_for

        assert isinstance(side, OpenAIChatProvider)
        variant = side.variant
        return {
            dialect: EmbeddingPassing(
                lambda model: path_for(variant.embeddings_path, model),
                read_embedding_usage,
                variant.base64_embeddings,
            )
        }
    if dialect == "ollama":
        from headrace.protocol.dialects.ollama.embeddings import read_embedding_usage as read_usage

        return {dialect: EmbeddingPassing(lambda model: "/api/embed", read_usage, False)}
    return {}
