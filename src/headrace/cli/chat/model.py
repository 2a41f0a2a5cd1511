"""What answers a chat: a model loaded here, or one that a server has (remote.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.cli.chat.conversation import Call, Message, plain
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cli.chat.tools import Tool
    from headrace.engine.sampling.defaults import SamplingDefaults
    from headrace.llm import LLM
    from headrace.offline.params import SamplingParams


class ChatDelta(NamedTuple):
    """A part of an answer as it comes."""

    text: str = ""
    reasoning: str = ""
    """What of it is the model's reasoning, which is not in `text`."""
    output_tokens: int = 0
    """How many tokens it brings."""
    prompt_tokens: int | None = None
    """Of the whole prompt, in one part of the answer; None in others."""
    cached_tokens: int = 0
    finish_reason: str | None = None
    calls: tuple[Call, ...] = ()
    """The calls of tools that end with it."""


class ChatModel(Protocol):
    """A model that continues conversations."""

    @property
    def context_tokens(self) -> int | None:
        """Most tokens of prompt and answer together; None if unknown."""

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """What is in force for parameters that are not set; empty if unknown."""

    def count_tokens(self, messages: Sequence[Message], tools: Sequence[Tool]) -> int | None:
        """Tokens of a conversation, the opening of the next answer included; None if unknown."""

    def answer(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        *,
        stop: tuple[str, ...],
        effort: str | None = None,
        tools: Sequence[Tool] = (),
    ) -> Iterator[ChatDelta]:
        """The answer to the last message. Closing it ends the work.

        effort: how much the model is to reason; None leaves it to the model. tools: what it may
        call.
        Raises RequestError where it is refused, and HeadraceError where it failed.
        """


class LocalModel:
    """A ChatModel in this process."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    @property
    def context_tokens(self) -> int:
        """The model's own limit, or that of the KV cache."""
        info = self._llm.info
        return min(info.max_model_len, info.pool_tokens)

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """The model's own, or those of --generation-config."""
        return self._llm.sampling_defaults

    def count_tokens(self, messages: Sequence[Message], tools: Sequence[Tool]) -> int:
        """Exactly."""
        return len(self._llm.encode_chat(plain(messages), tools=tools)) if messages else 0

    def answer(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        *,
        stop: tuple[str, ...],
        effort: str | None = None,
        tools: Sequence[Tool] = (),
    ) -> Iterator[ChatDelta]:
        """The first part has no text, only the number of the prompt's tokens."""
        talk = plain(messages)
        ids = self._llm.encode_chat(talk, reasoning_effort=effort, tools=tools)
        deltas = self._llm.stream_chat(
            talk, params, stop=stop, reasoning_effort=effort, tools=tools
        )
        try:
            yield ChatDelta(prompt_tokens=len(ids))
            for delta in deltas:
                if delta.error is not None:
                    raise HeadraceError(delta.error)
                yield ChatDelta(
                    delta.content or "",
                    delta.reasoning or "",
                    len(delta.token_ids),
                    cached_tokens=delta.cached_tokens,
                    finish_reason=delta.finish_reason,
                    calls=tuple(
                        Call(call.name, call.arguments, call.id) for call in delta.tool_calls
                    ),
                )
        finally:
            deltas.close()  # type: ignore[attr-defined]  # a generator
