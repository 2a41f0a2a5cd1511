"""Request fields that chat completions and completions share.

Types are checked while decoding; the descriptions are the source of docs/api.md. What the sampling
numbers may be differs between engines, so whoever has the engine checks them; so are ids, lengths
and names, which only a loaded model can judge.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.errors import RequestError

# OpenAI takes 4 stop strings, vLLM any number. Each is searched for in every piece of text, so
# there is a bound, far above what people send.
MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 1024
MAX_STOP_TOKEN_IDS = 1024

# msgspec takes limits on a plain type only, not on a union with null.
Salt = Annotated[str, Meta(min_length=1, max_length=1024)]
TokenId = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`stream_options`; only of requests that stream."""

    include_usage: bool | None = None


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True):
    """What both generation endpoints honour."""

    model: Annotated[
        str | None, Meta(description="A served name; may be left out, as one model is served.")
    ] = None
    temperature: Annotated[
        float, Meta(description="0 is greedy. Default 1, whatever the model says.")
    ] = 1.0
    top_p: Annotated[
        float,
        Meta(description="Keep the likeliest tokens up to this mass; 0 keeps one."),
    ] = 1.0
    top_k: Annotated[int, Meta(description="Keep the k likeliest tokens; 0 and -1 keep all.")] = 0
    min_p: Annotated[
        float,
        Meta(description="Keep tokens at least this likely relative to the likeliest."),
    ] = 0.0
    seed: Annotated[
        int | None,
        Meta(
            description="Seed of the request's random stream: the same request gives the same "
            "tokens. Default: the engine draws one."
        ),
    ] = None
    stop: Annotated[
        str | list[str],
        Meta(description=f"String or up to {MAX_STOP_STRINGS} strings that end the text."),
    ] = []
    stop_token_ids: Annotated[
        list[TokenId],
        Meta(max_length=MAX_STOP_TOKEN_IDS, description="Token ids that end the text."),
    ] = []
    ignore_eos: Annotated[
        bool, Meta(description="Go on after the model's own end-of-text tokens.")
    ] = False
    skip_special_tokens: Annotated[
        bool, Meta(description="Leave special tokens out of the text. Default true.")
    ] = True
    include_stop_str_in_output: Annotated[
        bool, Meta(description="Keep the stop string (or stop token) in the text.")
    ] = False
    stream: Annotated[bool, Meta(description="Send server-sent events as tokens are made.")] = False
    stream_options: Annotated[
        StreamOptions | None,
        Meta(description="`include_usage`: a last event with `usage`. Only with `stream`."),
    ] = None
    cache_salt: Annotated[
        Salt | None,
        Meta(description="Only requests with the same salt share prefix-cache blocks."),
    ] = None
    return_token_ids: Annotated[
        bool, Meta(description="Add `prompt_token_ids` and `token_ids` to the reply.")
    ] = False

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple, whichever way it was written."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a usage event."""
        options = self.stream_options
        return options is not None and bool(options.include_usage)


def check_stream_options(fields: SamplingFields) -> None:
    """Raise RequestError for options of a stream that was not asked for, as OpenAI does."""
    if fields.stream_options is not None and not fields.stream:
        raise RequestError(
            "stream_options: only allowed when `stream` is true; leave it out, or stream",
            param="stream_options",
        )


def check_stop(fields: SamplingFields) -> None:
    """Raise RequestError for stop strings that are empty, too long or too many."""
    strings = fields.stop_strings
    if len(strings) > MAX_STOP_STRINGS:
        raise RequestError(
            f"stop: {len(strings)} strings given, at most {MAX_STOP_STRINGS} are allowed",
            param="stop",
        )
    for index, string in enumerate(strings):
        param = "stop" if isinstance(fields.stop, str) else f"stop[{index}]"
        if not string:
            raise RequestError(
                f"{param}: the empty string cannot be a stop string; leave it out", param=param
            )
        if len(string) > MAX_STOP_CHARS:
            raise RequestError(
                f"{param}: {len(string)} characters given, at most {MAX_STOP_CHARS} are allowed",
                param=param,
            )
