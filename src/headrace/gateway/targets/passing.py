"""How a client's body reaches a provider as it came, but for a few fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.protocol.neutral.dialect import ReplySide
from headrace.protocol.neutral.usage import TokenUsage

_NO_EDITS: Mapping[str, bytes | None] = MappingProxyType({})


class Passing(NamedTuple):
    """Of one dialect of clients at one provider.

    path: after the base URL's, of the provider's model and whether the answer is streamed. edits:
    fields beside those that change everywhere; JSON, None for one that goes. replies: how answers
    are read, where the provider's own side does not.
    """

    path: Callable[[str, bool], str]
    edits: Mapping[str, bytes | None] = _NO_EDITS
    replies: ReplySide | None = None


class EmbeddingPassing(NamedTuple):
    """The same of embeddings. path: of the provider's model. usage: of a reply; raises
    DamagedReplyError for what is none. base64: whether vectors can be asked for as that."""

    path: Callable[[str], str]
    usage: Callable[[bytes], TokenUsage | None]
    base64: bool
