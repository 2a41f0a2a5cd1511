"""Mistral's API: https://docs.mistral.ai/api, chat completions and embeddings."""

from __future__ import annotations

from headrace.protocol.dialects.mistral.provider import MistralProvider

PROVIDER = MistralProvider()

__all__ = ["PROVIDER", "MistralProvider"]
