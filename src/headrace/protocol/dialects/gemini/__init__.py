"""Google's generateContent, as the Gemini API and Vertex AI speak it; providers only.

`PROVIDER` and `EMBEDDINGS` are of the Gemini API; for Vertex AI make them with a `VertexAi` that
knows project and location. Vertex also serves Anthropic's models, by
`publishers/anthropic/models/{model}:rawPredict`: their body is that of Anthropic's Messages with
`anthropic_version` in it, so that dialect and not this one would write it.
"""

from __future__ import annotations

from headrace.protocol.dialects.gemini.embeddings import GeminiEmbeddings
from headrace.protocol.dialects.gemini.place import GeminiApi, VertexAi
from headrace.protocol.dialects.gemini.provider import GeminiProvider

PROVIDER = GeminiProvider()
EMBEDDINGS = GeminiEmbeddings()

__all__ = [
    "EMBEDDINGS",
    "PROVIDER",
    "GeminiApi",
    "GeminiEmbeddings",
    "GeminiProvider",
    "VertexAi",
]
