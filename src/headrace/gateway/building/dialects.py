"""The dialects there are: which clients may speak, and which providers do.

They are imported when one is wanted: a gateway in front of two providers needs two of them.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Callable
from typing import cast

from headrace.config.load import nearest
from headrace.errors import ConfigError, shown
from headrace.gateway.settings.provider import ProviderSettings
from headrace.gateway.targets.in_steps import InSteps
from headrace.gateway.upstream.limits import PoolLimits
from headrace.gateway.upstream.origin import read_base_url
from headrace.protocol.neutral.dialect import ClientSide, ProviderSide, UsageSummary
from headrace.protocol.neutral.embedding import EmbeddingProvider


def _openai_chat(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.openai_chat import PRESETS, OpenAIChatProvider, azure

    if variant == "azure":
        return OpenAIChatProvider(azure(settings.api_version))
    if variant not in PRESETS:
        raise ConfigError(
            f"variant {shown(variant)} is not one of the OpenAI-compatible "
            f"ones{nearest(variant, PRESETS)}; there are {', '.join(sorted(PRESETS))}"
        )
    return OpenAIChatProvider(PRESETS[variant])


def _openai_responses(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.openai_responses import PROVIDER

    return PROVIDER


def _anthropic(variant: str, settings: ProviderSettings) -> ProviderSide:
    google = settings.google
    if google is not None:
        from headrace.protocol.dialects.anthropic.vertex import (
            VertexAnthropicProvider,
            VertexPlace,
        )

        return VertexAnthropicProvider(place=VertexPlace(google.project or "", google.location))
    from headrace.protocol.dialects.anthropic import PROVIDER

    return PROVIDER


def _gemini(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.gemini import PROVIDER, GeminiProvider, VertexAi

    if settings.google is None:
        return PROVIDER
    place = VertexAi(project=settings.google.project or "", location=settings.google.location)
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


def _replicate(variant: str, settings: ProviderSettings) -> ProviderSide:
    from headrace.protocol.dialects.replicate import ReplicateProvider

    # Where the settings say another address, its streams lie there too.
    base = None if settings.base_url is None else read_base_url(settings.base_url)
    return ReplicateProvider(own_origin="" if base is None else str(base.origin))


_MAKERS: dict[str, Callable[[str, ProviderSettings], ProviderSide]] = {
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "cohere": _cohere,
    "mistral": _mistral,
    "ollama": _ollama,
    "replicate": _replicate,
}


def embedding_side(dialect: str, side: ProviderSide) -> EmbeddingProvider | None:
    """How the provider makes embeddings; None if its dialect has none."""
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


def in_steps_of(
    side: ProviderSide, limits: PoolLimits, tls: ssl.SSLContext | None
) -> InSteps | None:
    """The driver for dialects whose answers take more than one request; None for all others."""
    if side.name != "replicate":
        return None
    from headrace.protocol.dialects.replicate import ReplicateProvider

    assert isinstance(side, ReplicateProvider)
    return InSteps(side.steps, limits, tls)


def glance_of(side: ProviderSide) -> Callable[[bytes], UsageSummary | None] | None:
    """What reads as little as a bill needs; None for dialects whose replies are read whole."""
    if side.name != "openai-chat":
        return None
    from headrace.protocol.dialects.openai_chat import OpenAIChatProvider

    assert isinstance(side, OpenAIChatProvider)
    return side.glance


def provider_side(dialect: str, variant: str, settings: ProviderSettings) -> ProviderSide:
    """Raises ConfigError for an unknown dialect."""
    if dialect not in _MAKERS:
        raise ConfigError(
            f"dialect {shown(dialect)} is not known{nearest(dialect, _MAKERS)}; there are "
            f"{', '.join(_MAKERS)}"
        )
    return _MAKERS[dialect](variant, settings)


def _of(package: str) -> Callable[[], ClientSide]:
    def load() -> ClientSide:
        found = importlib.import_module(f"headrace.protocol.dialects.{package}")
        return cast("ClientSide", found.CLIENT)

    return load


def _ollama_generate() -> ClientSide:
    from headrace.protocol.dialects.ollama.generate import OllamaGenerateClient

    return OllamaGenerateClient()


_CLIENTS: dict[str, Callable[[], ClientSide]] = {
    "openai-chat": _of("openai_chat"),
    "openai-completions": _of("openai_completions"),
    "openai-responses": _of("openai_responses"),
    "anthropic": _of("anthropic"),
    "ollama": _of("ollama"),
    "ollama-generate": _ollama_generate,
}
CLIENT_DIALECTS = tuple(_CLIENTS)
"""What clients may speak."""


def client_side(name: str) -> ClientSide:
    """The client side of one of CLIENT_DIALECTS."""
    return _CLIENTS[name]()


def client_sides() -> dict[str, ClientSide]:
    """All of them, by name."""
    return {name: client_side(name) for name in CLIENT_DIALECTS}
