"""A provider as the gateway uses it: address, dialect, keys, connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.gateway.targets.auth import Auth
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.origin import BaseUrl
from headrace.gateway.upstream.pool import Pool
from headrace.protocol.neutral.dialect import ProviderSide
from headrace.protocol.neutral.embedding import EmbeddingProvider


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Provider:
    """headers: of every request. client_dialect: name of the client dialect whose bodies it takes
    as they are, at `passed_path` of a model; None if every body is translated. embeddings: None
    if it makes none. first_token_s: see TimeoutSettings."""

    name: str
    side: ProviderSide
    base: BaseUrl
    auth: Auth
    pool: Pool
    timeouts: Timeouts
    first_token_s: float
    # People put keys into them.
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    client_dialect: str | None = None
    passed_path: Callable[[str], str] | None = None
    embeddings: EmbeddingProvider | None = None
    region: str | None = None
    keeps_data: bool | None = None
    zero_retention: bool | None = None
    local: bool = False
