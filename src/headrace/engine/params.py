"""What a caller may ask of the sampler; the engine's own vocabulary, ids only, no text.

`RANGES` is the one place that says what its numbers may be: command line, API and engine read it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.structured.grammar import Grammar

MAX_INT = (1 << 63) - 1
"""What one integer of a message may hold."""

MAX_TEMPERATURE = 1e4
"""Far beyond use (OpenAI's limit is 2); logits divided by it stay ordinary float32 numbers."""


class Range(NamedTuple):
    """The range of a number; both ends are allowed."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        """Whether `value` is a number within; NaN is not."""
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def __str__(self) -> str:
        """In words: "0 to 1", "1 or more"."""
        if self.high < MAX_INT:
            return f"{self.low:g} to {self.high:g}"
        if self.low < -1:
            return "an integer of 64 bits with its sign"
        return f"{self.low:g} or more, in 64 bits"


MAX_LOGIT_BIAS = 100.0
"""OpenAI's limit: at 100 a token is as good as certain, at -100 as good as forbidden."""

SAMPLERS = ("penalties", "temperature", "min_p", "top_k", "top_p")
"""What turns logits into a choice, in the order it is applied by default, which is vLLM's.
Bias and masks (logit_bias, allowed_token_ids, bad_words, min_tokens) always come before."""

MODEL_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""The parameters that a model's own files may have a default for (`engine.sampling_defaults`)."""

RANGES = {
    "temperature": Range(0, MAX_TEMPERATURE),
    "top_k": Range(-1, MAX_INT),
    "top_p": Range(0, 1),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(1e-3, 1e3),
    "frequency_penalty": Range(-2, 2),
    "presence_penalty": Range(-2, 2),
    "seed": Range(-MAX_INT - 1, MAX_INT),
    "choice": Range(0, MAX_INT),
    "max_tokens": Range(0, MAX_INT),
    "min_tokens": Range(0, MAX_INT),
    "priority": Range(-MAX_INT - 1, MAX_INT),
    "timeout_s": Range(0, 1e9),
}


class ThinkingBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on the reasoning of an answer. Where it has so many tokens and has not ended, the ids
    that end it come next, and the answer goes on after them."""

    max_tokens: int
    """Of reasoning, without the ids that begin and end it; 0 ends it at once."""
    end_ids: tuple[int, ...]
    """The sequence of ids that ends it."""
    is_open: bool = True
    """Whether the prompt has begun it, so that the first token is one of it."""
    begin_ids: tuple[int, ...] = ()
    """The sequence that begins it where the prompt has not."""
    other_end_ids: tuple[tuple[int, ...], ...] = ()
    """Sequences that end it as well, such as the head of a call; no budget makes them come, and
    where one has begun none comes within it."""
    masked_ids: tuple[int, ...] = ()
    """Ids that cannot come once the budget has ended it: a model that was cut short goes on to
    write the mark that it had in mind, which would be content. An answer within a grammar or of
    `allowed_token_ids` has no such mask."""

    @classmethod
    def between(
        cls,
        begin_ids: tuple[int, ...],
        end_ids: tuple[int, ...],
        other_end_ids: tuple[tuple[int, ...], ...],
        masked_ids: tuple[int, ...],
        *,
        max_tokens: int,
        is_open: bool,
    ) -> ThinkingBudget:
        """That of a model that reasons between these ids; they are those of its format."""
        return cls(
            max_tokens=max_tokens,
            begin_ids=() if is_open else begin_ids,
            end_ids=end_ids,
            other_end_ids=other_end_ids,
            masked_ids=masked_ids,
            is_open=is_open,
        )


class _NamesOfVllm(msgspec.StructMeta):
    """The type of RequestParams, which knows the fields that vLLM's has and this one does not."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Make one. A field of vLLM's whose value changes nothing here is dropped.

        Raises RequestError for its other values, TypeError for a name that neither has and for
        values without a name.
        """
        if args:
            raise TypeError("SamplingParams takes fields by name: SamplingParams(temperature=0.8)")
        try:
            return super().__call__(**fields)
        except TypeError:
            if fields.keys() <= set(cls.__struct_fields__):
                raise
        return super().__call__(**_own_fields(fields, cls.__struct_fields__))


def _own_fields(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    # Read only here: a caller who writes the names there are does not wait for the table.
    from headrace.config.load import nearest
    from headrace.config.vllm.sampling_params import FIELDS_OF_REQUESTS, SAMPLING_PARAMS

    for name, value in fields.items():
        if name in names:
            continue
        setting = SAMPLING_PARAMS.get(name)
        if name in FIELDS_OF_REQUESTS:
            if value is not None:
                raise RequestError(
                    f"SamplingParams({name}=...): {FIELDS_OF_REQUESTS[name]}",
                    param=name,
                    code="unsupported",
                )
        elif setting is None:
            raise TypeError(f"SamplingParams({name}=...): unknown field{nearest(name, names)}")
        elif not setting.takes(value):
            refusal = setting.refusal("SamplingParams", value, str)
            raise RequestError(refusal, param=name, code="unsupported")
    return {name: value for name, value in fields.items() if name in names}


class RequestParams(msgspec.Struct, frozen=True, kw_only=True, metaclass=_NamesOfVllm):
    """The parameters of one request but those in MODEL_DEFAULTS, which a caller may leave to the
    model. Numbers are within `RANGES`."""

    frequency_penalty: float = 0.0
    """Taken off a token's logit for each time that the output has it (OpenAI's formula); 0 has no
    effect."""
    presence_penalty: float = 0.0
    """Taken off a token's logit once if the output has it (OpenAI's formula); 0 has no effect."""
    logit_bias: dict[int, float] = {}
    """Added to the logits of these ids, within +-MAX_LOGIT_BIAS."""
    allowed_token_ids: tuple[int, ...] | None = None
    """Nothing else is drawn, not even an end id; None allows all, () is refused."""
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    """Sequences of ids that never come out whole: the last of one is masked where the output ends
    with the others."""
    samplers: tuple[str, ...] = SAMPLERS
    """The order of `SAMPLERS` to apply; what is left out is not applied, and its parameter then has
    to be the neutral one."""
    seed: int | None = None
    """Of the request's own random stream; None lets the engine draw one."""
    choice: int = 0
    """Which of several answers to one request this is; each has its own random stream."""
    max_tokens: int | None = 16
    """New tokens at most; None means up to the model's length, 0 only reads the prompt."""
    min_tokens: int = 0
    """End ids and stop_token_ids are masked until the output has so many tokens."""
    stop_token_ids: tuple[int, ...] = ()
    """End the request, beside the model's own end ids unless `ignore_eos`."""
    ignore_eos: bool = False
    speculation: bool = True
    """Whether tokens may be guessed and computed together; the answer is the same."""
    grammar: Grammar | None = None
    """The output is a text of it, or the beginning of one where it is cut by max_tokens or a stop
    token; None for any text. Where nothing can follow, it ends with "stop" even below min_tokens.
    """
    thinking: ThinkingBudget | None = None
    """How much of the output may be reasoning; None for any."""
    logprobs: int | None = None
    """None for none, k >= 0 for the chosen token and the k most likely."""
    prompt_logprobs: int | None = None
    """The same for each token of the prompt but the first, which follows nothing. Such a request
    computes its whole prompt; what is cached of it is not used."""


class SamplingParams(RequestParams, frozen=True, kw_only=True):
    """The parameters of one request, each with a value: what the engine computes with."""

    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = 0
    """0 and -1 keep all."""
    top_p: float = 1.0
    """0 keeps the likeliest token alone."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Logits of tokens that the prompt or the output has are divided by it where they are positive
    and multiplied where negative (CTRL, arXiv:1909.05858); 1 has no effect."""
