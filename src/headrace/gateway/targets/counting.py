"""How a provider counts the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.protocol.neutral.token_count import TokenCounter

_NOBODY: Mapping[str, str] = MappingProxyType({})


class Counting(NamedTuple):
    """passes: paths that take a client's body as it came, but for the model; by the client's
    dialect. at_root: whether paths lie beside /v1."""

    counter: TokenCounter
    passes: Mapping[str, str] = _NOBODY
    at_root: bool = False
