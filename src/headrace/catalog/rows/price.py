"""Prices of tokens, dated: one row for each provider, model and day from which it held.

A prompt longer than a boundary is priced at the tier above it **as a whole**, output included;
`Price.at` is the one place that says so.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from headrace.catalog.rows.row import Factor, Row, Share, Tokens, UsdPerMillionTokens

# By the length of the prompt in tokens above which they hold.
Tiers = dict[str, UsdPerMillionTokens]


class Rates(msgspec.Struct, frozen=True):
    """Prices of one request, USD per million tokens; None is a price that nobody stated."""

    input: float | None
    output: float | None
    cache_read: float | None
    cache_write_5m: float | None
    cache_write_1h: float | None


class Price(Row, frozen=True, kw_only=True):
    """The prices of `provider` for `model` from `effective_from` on, until `effective_to`.

    Fields that end in `_above` are keyed by the length of the prompt in tokens above which they
    hold ("200000"). Factors are of the prices above.
    """

    provider: str
    """Id or alias of a row, or a name that no row has."""
    model: str
    """Id or alias of a row, or a name that no row has."""
    model_at_provider: str | None = None
    """What requests call it."""
    effective_from: dt.date
    effective_to: dt.date | None = None
    in_use: bool = True
    """False for what another source states of a price that is not the one to bill with."""
    input_usd_per_million_tokens: UsdPerMillionTokens | None = None
    output_usd_per_million_tokens: UsdPerMillionTokens | None = None
    cache_read_usd_per_million_tokens: UsdPerMillionTokens | None = None
    cache_write_5m_usd_per_million_tokens: UsdPerMillionTokens | None = None
    cache_write_1h_usd_per_million_tokens: UsdPerMillionTokens | None = None
    reasoning_usd_per_million_tokens: UsdPerMillionTokens | None = None
    input_audio_usd_per_million_tokens: UsdPerMillionTokens | None = None
    output_audio_usd_per_million_tokens: UsdPerMillionTokens | None = None
    input_usd_per_million_tokens_above: Tiers = msgspec.field(default_factory=dict)
    output_usd_per_million_tokens_above: Tiers = msgspec.field(default_factory=dict)
    cache_read_usd_per_million_tokens_above: Tiers = msgspec.field(default_factory=dict)
    cache_write_5m_usd_per_million_tokens_above: Tiers = msgspec.field(default_factory=dict)
    cache_write_1h_usd_per_million_tokens_above: Tiers = msgspec.field(default_factory=dict)
    batch_factor: Share | None = None
    """For work that may wait."""
    flex_factor: Share | None = None
    """For work that waits longer."""
    priority_factor: Factor | None = None
    """For work that goes first."""
    cache_minimum_tokens: Tokens | None = None
    context_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None

    def at(self, prompt_tokens: int) -> Rates:
        """The prices of a request whose prompt has `prompt_tokens`.

        A tier that does not state one of them leaves it as it is below the boundary.
        """
        return Rates(
            _tier(self.input_usd_per_million_tokens,
                  self.input_usd_per_million_tokens_above, prompt_tokens),
            _tier(self.output_usd_per_million_tokens,
                  self.output_usd_per_million_tokens_above, prompt_tokens),
            _tier(self.cache_read_usd_per_million_tokens,
                  self.cache_read_usd_per_million_tokens_above, prompt_tokens),
            _tier(self.cache_write_5m_usd_per_million_tokens,
                  self.cache_write_5m_usd_per_million_tokens_above, prompt_tokens),
            _tier(self.cache_write_1h_usd_per_million_tokens,
                  self.cache_write_1h_usd_per_million_tokens_above, prompt_tokens),
        )  # fmt: skip

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Lengths of the prompt in tokens above which other prices hold, in order."""
        return tuple(
            sorted(
                {
                    int(boundary)
                    for tier in (
                        self.input_usd_per_million_tokens_above,
                        self.output_usd_per_million_tokens_above,
                        self.cache_read_usd_per_million_tokens_above,
                        self.cache_write_5m_usd_per_million_tokens_above,
                        self.cache_write_1h_usd_per_million_tokens_above,
                    )
                    for boundary in tier
                }
            )
        )

    def holds_on(self, day: dt.date) -> bool:
        """Whether the price is in force on that day."""
        return self.effective_from <= day and (self.effective_to is None or day < self.effective_to)


def _tier(base: float | None, above: dict[str, float], prompt_tokens: int) -> float | None:
    reached = [int(boundary) for boundary in above if prompt_tokens > int(boundary)]
    return above[str(max(reached))] if reached else base
