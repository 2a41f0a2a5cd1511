"""How a client's body reaches a provider unchanged, except for a few fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.protocol.neutral.dialect import ReplySide
from headrace.protocol.neutral.usage import TokenUsage

_NO_EDITS: Mapping[str, bytes | None] = MappingProxyType({})


class Passing(NamedTuple):
    """The pass-through route of one client dialect at one provider."""

    path: Callable[[str, bool], str]
    """Gives the path after the base URL, from the provider's model and whether it streams."""
    edits: Mapping[str, bytes | None] = _NO_EDITS
    """Fields to set in JSON, or to remove (None), in addition to those that always change."""
    replies: ReplySide | None = None
    """Reads the answers instead of the provider's own side."""


class EmbeddingPassing(NamedTuple):
    """The pass-through route of embeddings."""

    path: Callable[[str], str]
    """Gives the path, from the provider's model."""
    usage: Callable[[bytes], TokenUsage | None]
    """Reads a reply's usage; raises DamagedReplyError if it is not a reply."""
    base64: bool
    """Whether vectors can be requested as base64."""
