"""Request fields that chat completions and completions share.

Types are checked while decoding; the descriptions are the source of docs/api.md. What the sampling
numbers may be differs between engines, so whoever has the engine checks them; so are ids, lengths
and names, which only a loaded model can judge. Rules over several fields are in `rules`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.protocol.openai.structured import StructuredFields

# OpenAI takes 4 stop strings, vLLM any number. Each is searched for in every piece of text, so
# there is a bound, far above what people send.
MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 1024
MAX_STOP_TOKEN_IDS = 1024

# OpenAI's limit. Each choice is a request of its own in the engine, with a KV cache of its own
# beyond the prompt; who wants more sends several requests.
MAX_CHOICES = 128

# Each becomes up to two sequences of ids that are looked for at every token.
MAX_BAD_WORDS = 512
MAX_BAD_WORD_CHARS = 256

# msgspec takes limits on a plain type only, not on a union with null.
Salt = Annotated[str, Meta(min_length=1, max_length=1024)]
TokenId = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
KeptTokens = Annotated[int, Meta(ge=-1)]
BadWord = Annotated[str, Meta(max_length=MAX_BAD_WORD_CHARS)]
# Python's $ also matches before a line end, hence what comes before it.
RequestId = Annotated[str, Meta(pattern=r"^[!-~]{1,128}(?!\n)$")]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`stream_options`; only of requests that stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


NO_LIMIT = -1
"""What clients of vLLM send for reasoning without a budget."""


class SamplingFields(StructuredFields, frozen=True, kw_only=True):
    """Fields that both generation endpoints honour."""

    model: Annotated[
        str | None, Meta(description="A served name; may be omitted, as one model is served.")
    ] = None
    n: Annotated[
        Choices, Meta(description="Answers per prompt, each with a random stream of its own.")
    ] = 1
    temperature: Annotated[
        float | None,
        Meta(
            description="0 is greedy. Default of this and of the four below: the model's own "
            "(`--generation-config`), which `/v1/models` shows; where it has none, 1."
        ),
    ] = None
    top_p: Annotated[
        float | None,
        Meta(description="Keep the likeliest tokens up to this mass; 0 keeps one."),
    ] = None
    top_k: Annotated[
        int | None, Meta(description="Keep the k likeliest tokens; 0 and -1 keep all.")
    ] = None
    min_p: Annotated[
        float | None,
        Meta(description="Keep tokens at least this likely relative to the likeliest."),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        Meta(
            description="The logit of each token that occurs in the prompt or the output is "
            "divided by "
            "it if positive and multiplied by it if negative; 1 has no effect."
        ),
    ] = None
    frequency_penalty: Annotated[
        float,
        Meta(description="Subtracted from a token's logit for each time it occurs in the output."),
    ] = 0.0
    presence_penalty: Annotated[
        float, Meta(description="Subtracted once from a token's logit if it occurs in the output.")
    ] = 0.0
    logit_bias: Annotated[
        dict[str, float],
        Meta(
            description="Token ids, as strings, and what is added to their logits: -100 (never) "
            "to 100 "
            "(always)."
        ),
    ] = msgspec.field(default_factory=dict)
    allowed_token_ids: Annotated[
        list[TokenId] | None,
        Meta(description="Draw only from these; an end token is drawn only if it is among them."),
    ] = None
    bad_words: Annotated[
        list[BadWord],
        Meta(
            max_length=MAX_BAD_WORDS,
            description="Texts that are never generated, with or without a space before, as the "
            "tokenizer cuts them.",
        ),
    ] = msgspec.field(default_factory=list)
    samplers: Annotated[
        list[str] | None,
        Meta(
            description="The steps applied to the logits, in this order. Default: `penalties`, "
            "`temperature`, `min_p`, `top_k`, `top_p`. A step that is omitted must have its "
            "neutral value."
        ),
    ] = None
    seed: Annotated[
        int | None,
        Meta(
            description="Seed of the request's random stream: the same request gives the same "
            "tokens. Default: the engine draws one."
        ),
    ] = None
    min_tokens: Annotated[
        int,
        Meta(
            description="No end token, stop token or stop string ends the text before this many "
            "tokens."
        ),
    ] = 0
    stop: Annotated[
        str | list[str],
        Meta(description=f"String or up to {MAX_STOP_STRINGS} strings that end the text."),
    ] = msgspec.field(default_factory=list)
    stop_token_ids: Annotated[
        list[TokenId],
        Meta(max_length=MAX_STOP_TOKEN_IDS, description="Token ids that end the text."),
    ] = msgspec.field(default_factory=list)
    ignore_eos: Annotated[
        bool, Meta(description="Go on after the model's own end-of-text tokens.")
    ] = False
    speculation: Annotated[
        bool,
        Meta(
            description="false: compute no guessed tokens ahead for this request, whose answer is "
            "the same in either case. Default true."
        ),
    ] = True
    skip_special_tokens: Annotated[
        bool, Meta(description="Leave special tokens out of the text. Default true.")
    ] = True
    include_stop_str_in_output: Annotated[
        bool, Meta(description="Keep the stop string (or stop token) in the text.")
    ] = False
    stream: Annotated[bool, Meta(description="Send server-sent events as tokens are made.")] = False
    stream_options: Annotated[
        StreamOptions | None,
        Meta(
            description="`include_usage`: a last event with `usage`. `continuous_usage_stats`: "
            "every event has the usage so far. Only with `stream`."
        ),
    ] = None
    prompt_logprobs: Annotated[
        Count | None,
        Meta(
            description="Return, for each token of the prompt but the first, its log probability "
            "and those of this many of the likeliest (at most `--max-logprobs`)."
        ),
    ] = None
    truncate_prompt_tokens: Annotated[
        KeptTokens | None,
        Meta(description="Keep only this many last tokens of a prompt; -1: as many as fit."),
    ] = None
    priority: Annotated[
        int,
        Meta(
            description="Lower comes first. Other than 0 only with `--scheduling-policy priority`."
        ),
    ] = 0
    timeout_s: Annotated[
        float | None,
        Meta(
            description="Seconds from its arrival after which the request ends with what it has "
            "(finish_reason `timeout`). Default and upper limit: `--request-timeout`."
        ),
    ] = None
    cache_salt: Annotated[
        Salt | None,
        Meta(description="Only requests with the same salt share prefix-cache blocks."),
    ] = None
    request_id: Annotated[
        RequestId | None,
        Meta(
            description="Makes the reply's id `chatcmpl-` or `cmpl-` followed by this, 1 to 128 "
            "visible "
            "ASCII characters."
        ),
    ] = None
    return_token_ids: Annotated[
        bool, Meta(description="Add `prompt_token_ids` and `token_ids` to the reply.")
    ] = False
    return_tokens_as_token_ids: Annotated[
        bool, Meta(description="Write tokens as `token_id:123` in log probabilities.")
    ] = False
    return_metrics: Annotated[
        bool,
        Meta(
            description="Add `metrics` to each choice, or to its last event: times, cache and "
            "drafts; and what speculation guessed to `usage.completion_tokens_details`."
        ),
    ] = False

    return_progress: Annotated[
        bool,
        Meta(
            description="Report in the stream how much of a long prompt is computed: events "
            "without choices whose `prompt_progress` has `total`, `cache`, `processed` (cached "
            "ones included) and `time_ms`. Only with `stream`."
        ),
    ] = False
    thinking_token_budget: Annotated[
        Annotated[int, Meta(ge=NO_LIMIT, le=2**31 - 1)] | None,
        Meta(
            description="Most tokens of reasoning; it is closed there, and the answer follows. 0 "
            "also turns it off in a chat template that has a switch. -1: no limit. "
            "A prompt of a completion is within reasoning if its last mark begins it."
        ),
    ] = None

    @property
    def thinking_tokens(self) -> int | None:
        """The most tokens of reasoning; None where nothing says so."""
        return None if self.thinking_token_budget == NO_LIMIT else self.thinking_token_budget

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple, whichever way it was written. An empty one stops nothing: forms of
        clients send it for none."""
        given = (self.stop,) if isinstance(self.stop, str) else self.stop
        return tuple(string for string in given if string)

    @property
    def include_usage(self) -> bool:
        """Whether the stream is to end with a usage event."""
        options = self.stream_options
        return options is not None and bool(options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        """Whether every event is to have the usage so far, where the last has it."""
        options = self.stream_options
        return options is not None and bool(options.continuous_usage_stats)
