"""What a request asks, whatever endpoint it goes to."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import ConfigError


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One of text, token_ids, messages (as OpenAI writes them, images too) and inputs. Raises
    ConfigError for none or several of the four."""

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: tuple[dict[str, Any], ...] | None = None
    inputs: tuple[str, ...] | None = None
    """Texts to embed."""
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool = False
    """With `max_tokens` and `min_tokens`: how long the answer is to be; an endpoint without one of
    these fields refuses the prompt."""
    stream: bool = True
    extra_body: dict[str, Any] = {}
    """Fields of the body, over those that are made here."""

    def __post_init__(self) -> None:
        """Check that there is one prompt."""
        given = [
            name
            for name in ("text", "token_ids", "messages", "inputs")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ConfigError(
                f"prompt: {' and '.join(given) or 'nothing'} given; give exactly one of text, "
                "token_ids, messages and inputs"
            )

    def as_messages(self) -> list[dict[str, Any]]:
        """The conversation: a text is what the user says. ConfigError for ids and inputs."""
        if self.messages is not None:
            return list(self.messages)
        if self.text is None:
            raise ConfigError(
                "prompt: a chat endpoint takes text or messages, not token ids or inputs"
            )
        return [{"role": "user", "content": self.text}]
