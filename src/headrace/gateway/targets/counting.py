"""How a provider counts the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.protocol.neutral.token_count import TokenCounter

_NOBODY: Mapping[str, str] = MappingProxyType({})


class Counting(NamedTuple):
    """The way to count a prompt's tokens at a provider."""

    counter: TokenCounter
    passes: Mapping[str, str] = _NOBODY
    """Paths that take a client's body unchanged except for the model, by the client's dialect."""
    at_root: bool = False
    """Whether the paths are beside /v1."""
