"""What an answer took, as lines that do not overlap, so that a bill is a sum.

Vendors count differently: OpenAI's prompt tokens include cached ones, Anthropic's do not; Gemini's
thoughts lie outside of its candidates' tokens, OpenAI's inside its completion's. A reader of a
dialect sorts that out here once, and a writer puts it back in the dialect's own way.
"""

from __future__ import annotations

import msgspec


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by how they are billed; each is in exactly one field."""

    input_tokens: int = 0
    """Text and pictures that were not cached."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    """Written with the vendor's ordinary lifetime (Anthropic: five minutes)."""
    cache_write_1h_tokens: int = 0
    input_audio_tokens: int = 0
    input_audio_s: int = 0
    """Recordings that are billed by the second in addition to the tokens (Mistral)."""
    output_tokens: int = 0
    """Without reasoning and audio."""
    reasoning_tokens: int = 0
    output_audio_tokens: int = 0
    images: int = 0
    """Pictures made."""
    cost_nusd: int | None = None
    """The cost that the provider itself reports (OpenRouter), in 1e-9 dollars."""
    is_incomplete: bool = False
    """Whether something is billed that no field counts: a search, or tokens at the rate of a faster
    tier."""

    @property
    def prompt_tokens(self) -> int:
        """All that was read."""
        return (
            self.input_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
            + self.cache_write_1h_tokens
            + self.input_audio_tokens
        )

    @property
    def completion_tokens(self) -> int:
        """All that was written."""
        return self.output_tokens + self.reasoning_tokens + self.output_audio_tokens
