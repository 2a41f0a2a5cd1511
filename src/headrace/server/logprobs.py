"""Log probabilities in the two shapes of the API.

A token is its own bytes, which may be part of a character: chat replies carry them as `bytes` and a
readable `token`; completions, which have no such field, write them as OpenAI does, `bytes:\\xe2`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.engine.messages import TokenLogprob
from headrace.protocol.openai.chat import ChatLogprobs, ChatTokenLogprob, TopLogprob
from headrace.protocol.openai.completions import CompletionLogprobs

# JSON has no -inf; OpenAI's schema says that -9999.0 means very unlikely.
FLOOR = -9999.0


class TokenTable(Protocol):
    """What is needed of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes a token adds to the text; a special token's own text."""


def floored(logprob: float) -> float:
    """A value that JSON can hold: -inf and NaN become the floor."""
    return logprob if logprob > FLOOR else FLOOR


def chat_logprobs(tokens: Sequence[TokenLogprob], tokenizer: TokenTable) -> ChatLogprobs:
    """Chat's shape: each token with its rivals, exactly as many as were asked for."""
    content = []
    for one in tokens:
        raw = tokenizer.token_bytes(one.token_id)
        top = []
        for token_id, logprob in one.top:
            rival = tokenizer.token_bytes(token_id)
            top.append(
                TopLogprob(token=_readable(rival), logprob=floored(logprob), bytes=list(rival))
            )
        content.append(
            ChatTokenLogprob(
                token=_readable(raw),
                logprob=floored(one.logprob),
                bytes=list(raw),
                top_logprobs=top,
            )
        )
    return ChatLogprobs(content=content)


def completion_logprobs(
    tokens: Sequence[TokenLogprob], text_offsets: Sequence[int], tokenizer: TokenTable
) -> CompletionLogprobs:
    """Completions' shape: columns over the tokens, whose text begins at `text_offsets`."""
    names, tops = [], []
    for one in tokens:
        name = _exact(tokenizer.token_bytes(one.token_id))
        names.append(name)
        top = {_exact(tokenizer.token_bytes(i)): floored(value) for i, value in one.top}
        # As OpenAI has it: the sampled token is always among them, so there may be one more.
        top.setdefault(name, floored(one.logprob))
        tops.append(top)
    return CompletionLogprobs(
        text_offset=list(text_offsets),
        token_logprobs=[floored(one.logprob) for one in tokens],
        tokens=names,
        top_logprobs=list(tops),
    )


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _exact(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
