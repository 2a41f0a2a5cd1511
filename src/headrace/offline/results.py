"""What a generation gives: deltas while it runs, a result at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.engine.messages import FinishReason, TokenLogprob
from headrace.offline.vllm_names import no_attribute

AnswerEnd = FinishReason | Literal["tool_calls"]
"""Why an answer ended: as the engine says, or "tool_calls" where it ended by itself after calls."""

PromptLogprobs = tuple[TokenLogprob | None, ...]
"""One per token of the prompt; None for the first, which follows nothing."""


@dataclass(frozen=True)
class ToolCall:
    """A call that the model wrote."""

    name: str
    """The function's name."""
    arguments: str
    """JSON text, as the model wrote it; of an answer that ends within it, its beginning."""
    id: str
    """The one that the model wrote, or a random one."""

    @property
    def in_message(self) -> dict[str, Any]:
        """As messages of OpenAI's API have it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True)
class GenerationDelta:
    """The output of a step: text that is settled, and tokens whose text may still be held back.

    The last one has a finish_reason.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: AnswerEnd | None = None
    stop_reason: str | int | None = None
    """The stop string or the id from stop_token_ids that ended the text."""
    error: str | None = None
    """The cause where finish_reason is "error"."""
    cached_tokens: int = 0
    prompt_logprobs: PromptLogprobs | None = None
    """Sent once if requested, in a delta that need not be the first."""
    content: str | None = None
    """Of a chat: what of the answer is for the user. None where nothing was read."""
    reasoning: str | None = None
    """Of a chat: what of it is the model's reasoning; None for none."""
    reasoning_tokens: int = 0
    """Of a chat: how many more tokens are known to be the model's reasoning, as the server's usage
    has it; a token is counted once the next one begins."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of a chat: the calls that are complete with this delta."""

    if not TYPE_CHECKING:  # a type checker has to find unknown names

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name, "result")


@dataclass(frozen=True)
class GenerationResult:
    """One prompt's answer. Fields as in GenerationDelta; logprobs is None if not requested.

    token_ids include the id that ended the text and, of a stop string, the token that completed it.
    text: all that the model wrote; where an answer of a chat is read into content, reasoning and
    tool calls, with the marks of the model's format.
    alternatives: the other n - 1 answers to the prompt, where more than one was asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: AnswerEnd
    prompt_token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    cached_tokens: int = 0
    prompt_logprobs: PromptLogprobs | None = None
    alternatives: tuple[GenerationResult, ...] = ()
    content: str | None = None
    reasoning: str | None = None
    reasoning_tokens: int = 0
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def choices(self) -> tuple[GenerationResult, ...]:
        """All n answers, this one first."""
        return (self, *self.alternatives)

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message of the conversation, in the form of OpenAI's API."""
        content = self.text if self.content is None else self.content
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.in_message for call in self.tool_calls]
        return message

    if not TYPE_CHECKING:  # a type checker has to find unknown names

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name, "result")

        def __getitem__(self, index: object) -> Any:
            raise TypeError(
                "a GenerationResult is not a list; chat returns one result, whose n answers are "
                "result.choices"
            )


def grouped(answers: Sequence[GenerationResult], n: int) -> list[GenerationResult]:
    """A result per prompt, of the n answers to each, which lie side by side in `answers`."""
    if n == 1:
        return list(answers)
    return [
        replace(answers[first], alternatives=tuple(answers[first + 1 : first + n]))
        for first in range(0, len(answers), n)
    ]
