"""Cohere's API, version 2: https://docs.cohere.com/reference/chat and .../embed."""

from __future__ import annotations

from headrace.protocol.dialects.cohere.provider import CohereProvider

PROVIDER = CohereProvider()

__all__ = ["PROVIDER", "CohereProvider"]
