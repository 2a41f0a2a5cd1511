"""What an answer took, as lines that do not overlap, so that a bill is a sum.

Vendors count differently: OpenAI's prompt tokens include cached ones, Anthropic's do not; Gemini's
thoughts lie outside of its candidates' tokens, OpenAI's inside its completion's. A reader of a
dialect sorts that out here once, and a writer puts it back in the dialect's own way.
"""

from __future__ import annotations

import msgspec


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by what they are billed as; every one is in one line. images: pictures made.

    input_tokens: text and pictures read anew. cache_write_tokens: written with the vendor's
    ordinary lifetime (Anthropic: five minutes). output_tokens: without reasoning and audio.
    input_audio_s: recordings that are billed by the second beside the tokens (Mistral).
    cost_nusd: what the provider itself says it took (OpenRouter), in 1e-9 dollars. is_incomplete:
    something is billed that no line counts: a search, or tokens at the rate of a faster way to run.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    input_audio_tokens: int = 0
    input_audio_s: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    output_audio_tokens: int = 0
    images: int = 0
    cost_nusd: int | None = None
    is_incomplete: bool = False

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
