"""Log probabilities in the shapes of the API.

A token is its own bytes, which may be part of a character: chat replies carry them as `bytes` and a
readable `token`; completions, which have no such field, write them as OpenAI does, `bytes:\\xe2`.
Either writes `token_id:123` where a request wants tokens so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import UNSET, UnsetType

from headrace.engine.messages import TokenLogprob
from headrace.protocol.openai.chat import ChatLogprobs, ChatTokenLogprob, TopLogprob
from headrace.protocol.openai.choice import PromptLogprob, PromptLogprobs
from headrace.protocol.openai.completions import CompletionLogprobs

# JSON has no -inf; OpenAI's schema says that -9999.0 means very unlikely.
FLOOR = -9999.0


class TokenTable(Protocol):
    """The part of a tokenizer that log probabilities need."""

    @property
    def has_text(self) -> bool:
        """Whether tokens have names other than their ids."""

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes a token adds to the text; a special token's own text."""


def floored(logprob: float) -> float:
    """A value that JSON can hold: -inf and NaN become the floor."""
    return logprob if logprob > FLOOR else FLOOR


def chat_logprobs(
    tokens: Sequence[TokenLogprob], tokenizer: TokenTable, *, as_ids: bool = False
) -> ChatLogprobs:
    """Chat's shape: each token with its rivals, exactly as many as were asked for."""
    content = []
    for one in tokens:
        raw = tokenizer.token_bytes(one.token_id)
        top = []
        for token_id, logprob in one.top:
            rival = tokenizer.token_bytes(token_id)
            top.append(
                TopLogprob(
                    token=_id_name(token_id) if as_ids else _readable(rival),
                    logprob=floored(logprob),
                    bytes=list(rival),
                )
            )
        content.append(
            ChatTokenLogprob(
                token=_id_name(one.token_id) if as_ids else _readable(raw),
                logprob=floored(one.logprob),
                bytes=list(raw),
                top_logprobs=top,
            )
        )
    return ChatLogprobs(content=content)


def completion_logprobs(
    token_ids: Sequence[int],
    logprobs: Sequence[TokenLogprob | None],
    text_offsets: Sequence[int],
    tokenizer: TokenTable,
    *,
    most: int,
    as_ids: bool = False,
) -> CompletionLogprobs:
    """Completions' shape: columns over the tokens, whose text begins at `text_offsets`.

    logprobs: None for a token without. most: rivals to name, of those there are.
    """

    def name(token_id: int) -> str:
        return _id_name(token_id) if as_ids else _exact(tokenizer.token_bytes(token_id))

    def rivals(one: TokenLogprob | None) -> dict[str, float] | None:
        if one is None:
            return None
        top = {name(token_id): floored(value) for token_id, value in one.top[:most]}
        # As OpenAI has it: the token itself is always among them, so there may be one more.
        top.setdefault(name(one.token_id), floored(one.logprob))
        return top

    return CompletionLogprobs(
        text_offset=list(text_offsets),
        token_logprobs=[None if one is None else floored(one.logprob) for one in logprobs],
        tokens=[name(token_id) for token_id in token_ids],
        top_logprobs=[rivals(one) for one in logprobs],
    )


def prompt_logprobs(
    tokens: Sequence[TokenLogprob | None] | None, tokenizer: TokenTable, *, most: int | None
) -> PromptLogprobs | UnsetType | None:
    """vLLM's shape: per token of the prompt, the token and its `most` likeliest rivals, by id.

    Absent where `most` is None, as nobody asked; null where the prompt was not read to its end.
    """
    if most is None:
        return UNSET
    if tokens is None:
        return None
    return [None if one is None else _at_position(one, tokenizer, most) for one in tokens]


def _at_position(one: TokenLogprob, tokenizer: TokenTable, most: int) -> dict[int, PromptLogprob]:
    def entry(token_id: int, logprob: float, rank: int) -> PromptLogprob:
        name = _readable(tokenizer.token_bytes(token_id))
        return PromptLogprob(logprob=floored(logprob), rank=rank, decoded_token=name)

    entries = {one.token_id: entry(one.token_id, one.logprob, one.rank)}
    for rank, (token_id, logprob) in enumerate(one.top[:most], 1):
        if token_id != one.token_id:
            entries[token_id] = entry(token_id, logprob, rank)
    return entries


def _id_name(token_id: int) -> str:
    return f"token_id:{token_id}"


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _exact(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
