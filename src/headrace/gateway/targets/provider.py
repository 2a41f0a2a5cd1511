"""A provider as the gateway uses it: address, dialect, keys, connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.gateway.targets.auth import Auth
from headrace.gateway.targets.counting import Counting
from headrace.gateway.targets.in_steps import InSteps
from headrace.gateway.targets.passing import EmbeddingPassing, Passing
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.origin import BaseUrl
from headrace.gateway.upstream.pool import Pool
from headrace.protocol.neutral.dialect import ProviderSide, UsageSummary
from headrace.protocol.neutral.embedding import EmbeddingProvider


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Provider:
    """headers: of every request. passes: by name, the dialects of clients whose bodies it takes as
    they are; all others are translated. glance: what a bill needs of a reply that is passed on;
    None where all of it is read. embeddings: None if it makes none; embedding_passes: as `passes`.
    counting: how it counts tokens; None if it cannot. in_steps: where its answers take more than
    one request. first_token_s: see TimeoutSettings. local: on this machine. self_hosted: whether
    it is of a kind that people run themselves."""

    name: str
    side: ProviderSide
    base: BaseUrl
    auth: Auth
    pool: Pool
    timeouts: Timeouts
    first_token_s: float
    # People put keys into them.
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    passes: Mapping[str, Passing] = field(default_factory=dict)
    glance: Callable[[bytes], UsageSummary | None] | None = None
    embeddings: EmbeddingProvider | None = None
    embedding_passes: Mapping[str, EmbeddingPassing] = field(default_factory=dict)
    counting: Counting | None = None
    in_steps: InSteps | None = None
    region: str | None = None
    keeps_data: bool | None = None
    zero_retention: bool | None = None
    local: bool = False
    self_hosted: bool = False
