"""One request on its way: what the engine is asked for, and its outputs made deltas and a result.

Stop strings live here: the engine knows ids only, so whoever reads a request to a delta with a
finish_reason gives up what the engine may still do for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headrace.engine.messages import Output, Submit
from headrace.engine.params import SamplingParams
from headrace.errors import RequestError
from headrace.offline import arguments, values
from headrace.offline.chat import ChatAnswer, ChatPrompt
from headrace.offline.progress import ProgressMeter
from headrace.offline.prompts import PromptEncoder
from headrace.offline.results import GenerationDelta, GenerationResult
from headrace.text.stream import TextStream

MAX_CHOICES = 1 << 14
"""Answers to one prompt: each is a request of its own, so that a slip of the keyboard would fill
the memory before the first of them ran."""


class Options(NamedTuple):
    """The options of a call beside prompts and sampling parameters, as in Submit."""

    stops: tuple[str, ...]
    cache_salt: str
    priority: int
    timeout_s: float | None

    @classmethod
    def of(cls, stop: object, cache_salt: object, priority: object, timeout_s: object) -> Options:
        """From a caller's arguments; raises RequestError for one of another type."""
        return cls(
            arguments.stop_strings(stop),
            values.text(cache_salt, "cache_salt"),
            values.integer(priority, "priority"),
            values.number_or_none(timeout_s, "timeout_s"),
        )


@dataclass(frozen=True)
class OpenRequest:
    """A request, the text of its answer so far, and the deltas of it that nobody has read yet."""

    submit: Submit
    text: TextStream
    answer: ChatAnswer | None = None
    """The reading of an answer to a conversation; None for other prompts."""
    meter: ProgressMeter | None = None
    arrived: deque[GenerationDelta] = field(default_factory=deque)

    @classmethod
    def make(
        cls,
        request_id: str,
        prompt: list[int] | ChatPrompt,
        params: SamplingParams,
        options: Options,
        encoder: PromptEncoder,
        meter: ProgressMeter | None = None,
    ) -> OpenRequest:
        """Raises RequestError for an empty stop string."""
        chat = prompt if isinstance(prompt, ChatPrompt) else None
        token_ids = prompt.token_ids if isinstance(prompt, ChatPrompt) else prompt
        reading = None if chat is None else chat.reading
        submit = Submit(
            request_id,
            token_ids,
            params,
            cache_salt=options.cache_salt,
            priority=options.priority,
            timeout_s=options.timeout_s,
        )
        text = TextStream(
            encoder.tokenizer,
            prompt_ids=token_ids,
            stops=options.stops,
            min_tokens=params.min_tokens,
            kept_special_ids=() if reading is None else reading.kept_ids,
        )
        return cls(submit, text, None if chat is None else ChatAnswer(reading), meter)

    def delta(self, output: Output) -> GenerationDelta:
        """The piece of an output; a stop string in it ends the text, whatever the engine says."""
        taken = self.text.take(
            output.token_ids, output.finish_reason, ends_with_text=output.ends_with_text
        )
        stopped = taken.stop is not None
        heard = output.prompt_logprobs
        delta = GenerationDelta(
            text=taken.text,
            token_ids=tuple(output.token_ids[: taken.num_tokens]),
            logprobs=tuple((output.logprobs or [])[: taken.num_tokens]),
            finish_reason="stop" if stopped else output.finish_reason,
            stop_reason=taken.stop if stopped else output.stop_reason,
            error=output.error,
            cached_tokens=output.cached_tokens,
            prompt_logprobs=None if heard is None else tuple(heard),
        )
        return delta if self.answer is None else self.answer.read(delta, taken.text_offsets)

    def count(self, delta: GenerationDelta) -> None:
        """Tell whoever follows the call's progress of a delta."""
        if self.meter is not None:
            prompt_tokens = len(self.submit.prompt_token_ids)
            self.meter.add(self.submit.request_id, prompt_tokens, delta)

    def result(self, deltas: Sequence[GenerationDelta]) -> GenerationResult:
        """All deltas together."""
        last = deltas[-1]
        assert last.finish_reason is not None
        logprobs = tuple(logprob for delta in deltas for logprob in delta.logprobs)
        heard = (delta.prompt_logprobs for delta in deltas if delta.prompt_logprobs is not None)
        return GenerationResult(
            text="".join(delta.text for delta in deltas),
            token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
            finish_reason=last.finish_reason,
            prompt_token_ids=tuple(self.submit.prompt_token_ids),
            logprobs=None if self.submit.params.logprobs is None else logprobs,
            stop_reason=last.stop_reason,
            error=last.error,
            cached_tokens=max(delta.cached_tokens for delta in deltas),
            prompt_logprobs=next(heard, None),
            content=_joined(delta.content for delta in deltas),
            reasoning=_joined(delta.reasoning for delta in deltas),
            reasoning_tokens=sum(delta.reasoning_tokens for delta in deltas),
            tool_calls=tuple(call for delta in deltas for call in delta.tool_calls),
        )


def _joined(pieces: Iterable[str | None]) -> str | None:
    """The pieces together; None where there are none."""
    given = [piece for piece in pieces if piece is not None]
    return "".join(given) if given else None


def number_of_choices(n: object) -> int:
    """How many answers to a prompt are asked for. Raises RequestError outside 1 to MAX_CHOICES."""
    count = values.integer(n, "n")
    if not 1 <= count <= MAX_CHOICES:
        value = str(count) if count.bit_length() <= 128 else "too large"
        raise RequestError(
            f"n is {value}; it must be 1 to {MAX_CHOICES}", param="n", code="invalid_value"
        )
    return count


def choices(params: Iterable[SamplingParams], n: int) -> list[SamplingParams]:
    """n of each, which differ in the random stream they draw from."""
    return [
        msgspec.structs.replace(own, choice=own.choice + index) if index else own
        for own in params
        for index in range(n)
    ]
