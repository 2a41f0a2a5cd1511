"""A provider as the gateway uses it: address, dialect, keys, connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.gateway.settings.cache import CacheScope
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
    """A configured provider."""

    name: str
    side: ProviderSide
    base: BaseUrl
    auth: Auth
    pool: Pool
    timeouts: Timeouts
    first_token_s: float
    """See TimeoutSettings."""
    # People put keys into them.
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Headers of every request."""
    passes: Mapping[str, Passing] = field(default_factory=dict)
    """Client dialects whose bodies it takes unchanged; all others are translated."""
    glance: Callable[[bytes], UsageSummary | None] | None = None
    """Reads what a bill needs of a passed-through reply; None if replies are read in full."""
    embeddings: EmbeddingProvider | None = None
    """None if it makes no embeddings."""
    embedding_passes: Mapping[str, EmbeddingPassing] = field(default_factory=dict)
    """As `passes`, for embeddings."""
    counting: Counting | None = None
    """How it counts tokens; None if it cannot."""
    in_steps: InSteps | None = None
    """Set if its answers take more than one request."""
    prompt_cache_field: str | None = None
    """The field of a request that separates its prompt cache; None if it has none."""
    prompt_cache_scope: CacheScope = "all"
    """Whose requests share the cache."""
    region: str | None = None
    keeps_data: bool | None = None
    zero_retention: bool | None = None
    local: bool = False
    """Whether it runs on this machine."""
    self_hosted: bool = False
    """Whether it is software that people run themselves."""
