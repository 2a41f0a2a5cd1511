"""The dialects there are: which clients may speak, and which providers do.

They are imported when one is wanted: a gateway in front of two providers needs two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from headrace.config.load import nearest
from headrace.errors import ConfigError, shown
from headrace.gateway.settings.provider import ProviderSettings
from headrace.protocol.neutral.dialect import ClientSide, ProviderSide
from headrace.protocol.neutral.embedding import EmbeddingProvider


def _openai_chat(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.openai_chat import PRESETS, OpenAIChatProvider, azure

    if variant == "azure":
        return OpenAIChatProvider(azure(settings.api_version))
    if variant not in PRESETS:
        raise ConfigError(
            f"variant {shown(variant)} is none of the OpenAI-compatible ones"
            f"{nearest(variant, PRESETS)}; there are {', '.join(sorted(PRESETS))}"
        )
    return OpenAIChatProvider(PRESETS[variant])


def _openai_responses(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.openai_responses import PROVIDER

    return PROVIDER


def _anthropic(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.anthropic import PROVIDER

    return PROVIDER


def _gemini(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.gemini import PROVIDER, GeminiProvider, VertexAi

    if settings.google is None:
        return PROVIDER
    place = VertexAi(project=settings.google.project, location=settings.google.location)
    return GeminiProvider(place=place)


def _bedrock(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.bedrock import PROVIDER

    return PROVIDER


def _cohere(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.cohere import PROVIDER

    return PROVIDER


def _mistral(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.mistral import PROVIDER

    return PROVIDER


def _ollama(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.ollama import PROVIDER

    return PROVIDER


_MAKERS: dict[str, Callable[[str, ProviderSettings], ProviderSide]] = {
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "cohere": _cohere,
    "mistral": _mistral,
    "ollama": _ollama,
}


def embedding_side(dialect: str, side: ProviderSide) -> EmbeddingProvider | None:
    """How the provider makes embeddings; None where its dialect has none."""
    if dialect == "gemini":
        from headrace.protocol.dialects.gemini import GeminiEmbeddings, GeminiProvider

        assert isinstance(side, GeminiProvider)
        return GeminiEmbeddings(place=side.place)
    if dialect == "bedrock":
        from headrace.protocol.dialects.bedrock import EMBEDDINGS

        return EMBEDDINGS
    if dialect in ("openai-chat", "cohere", "mistral", "ollama"):
        return cast("EmbeddingProvider", side)
    return None


_PASSED_PATHS = {
    "openai-responses": "/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}


def passed_path(dialect: str, side: ProviderSide) -> Callable[[str], str] | None:
    """Where a provider takes bodies of its own dialect as clients send them; by its model."""
    if dialect == "openai-chat":
        from headrace.protocol.dialects.openai_chat import OpenAIChatProvider
        from headrace.protocol.dialects.openai_chat.write_call import path_for

        assert isinstance(side, OpenAIChatProvider)
        template = side.variant.chat_path
        return lambda model: path_for(template, model)
    path = _PASSED_PATHS.get(dialect)
    return None if path is None else lambda model: path


def provider_side(dialect: str, variant: str, settings: ProviderSettings) -> ProviderSide:
    """Raises ConfigError for a dialect that nobody speaks here."""
    if dialect not in _MAKERS:
        raise ConfigError(
            f"dialect {shown(dialect)} is not known{nearest(dialect, _MAKERS)}; there are "
            f"{', '.join(_MAKERS)}"
        )
    return _MAKERS[dialect](variant, settings)


def client_sides() -> dict[str, ClientSide]:
    """By name, those that clients may speak."""
    from headrace.protocol.dialects.anthropic import CLIENT as ANTHROPIC
    from headrace.protocol.dialects.ollama import CLIENT as OLLAMA
    from headrace.protocol.dialects.openai_chat import CLIENT as OPENAI_CHAT
    from headrace.protocol.dialects.openai_responses import CLIENT as OPENAI_RESPONSES

    sides: tuple[ClientSide, ...] = (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, OLLAMA)
    return {one.name: one for one in sides}
