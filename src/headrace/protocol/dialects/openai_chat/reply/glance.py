"""The usage of a reply that is passed through, in a tenth of the time of reading all of it.

This fast path covers only ordinary replies; for others it returns None, and the whole reply has to
be read.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.protocol.dialects.openai_chat.reply.usage import read_usage
from headrace.protocol.dialects.token_count import MOST_TOKENS
from headrace.protocol.neutral.dialect import UsageSummary
from headrace.protocol.neutral.reply import Finish
from headrace.protocol.neutral.usage import TokenUsage

# Words that mean the same to everybody; what else ends an answer is for the whole reading.
_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}

Count = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]


class _Message(msgspec.Struct):
    role: str
    content: str | None = None
    tool_calls: msgspec.Raw | None = None
    function_call: msgspec.Raw | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str
    error: msgspec.Raw | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: msgspec.Raw
    error: msgspec.Raw | None = None
    service_tier: str | None = None


class _Read(msgspec.Struct, forbid_unknown_fields=True):
    cached_tokens: Count = 0
    audio_tokens: Literal[0] = 0


class _Wrote(msgspec.Struct, forbid_unknown_fields=True):
    reasoning_tokens: Count = 0
    audio_tokens: Literal[0] = 0
    accepted_prediction_tokens: Count = 0
    rejected_prediction_tokens: Count = 0


class _PlainUsage(msgspec.Struct, forbid_unknown_fields=True):
    """Usage as OpenAI and the engines report it; larger reports are read by `read_usage`."""

    prompt_tokens: Count
    completion_tokens: Annotated[int, Meta(gt=0, le=MOST_TOKENS)]
    total_tokens: Count
    prompt_tokens_details: _Read | None = None
    completion_tokens_details: _Wrote | None = None


_NOTHING_READ, _NOTHING_WRITTEN = _Read(), _Wrote()
_decoder = msgspec.json.Decoder(_Reply)
_plain_decoder = msgspec.json.Decoder(_PlainUsage)


def glance(body: bytes, *, gap_is_thoughts: bool = False) -> UsageSummary | None:
    """Usage and finish reason; None if only the complete reader can find them."""
    try:
        body.decode()  # what is skipped is not looked at, and clients are to get JSON
        reply = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if reply.error is not None or len(reply.choices) != 1:
        return None
    choice = reply.choices[0]
    finish = _FINISHES.get(choice.finish_reason)
    if finish is None or choice.error is not None:
        return None
    message = choice.message
    calls = message.tool_calls is not None or message.function_call is not None
    if calls and finish == "stop":
        return None
    usage = _plain(reply.usage)
    if usage is None:
        try:
            told = msgspec.json.decode(reply.usage)
        except msgspec.MsgspecError:
            return None  # numbers that are none were skipped above
        if not isinstance(told, dict):
            return None
        usage = read_usage(told, gap_is_thoughts=gap_is_thoughts)
    if usage is None or not usage.completion_tokens:
        return None
    return UsageSummary(usage, finish, reply.service_tier or None)


def _plain(usage: msgspec.Raw) -> TokenUsage | None:
    """As `read_usage`, for plain usage; None for any other."""
    try:
        told = _plain_decoder.decode(usage)
    except msgspec.MsgspecError:
        return None
    prompt, completion = told.prompt_tokens, told.completion_tokens
    cached = (told.prompt_tokens_details or _NOTHING_READ).cached_tokens
    reasoning = (told.completion_tokens_details or _NOTHING_WRITTEN).reasoning_tokens
    if told.total_tokens != prompt + completion or cached > prompt or reasoning > completion:
        return None
    return TokenUsage(
        input_tokens=prompt - cached,
        cache_read_tokens=cached,
        output_tokens=completion - reasoning,
        reasoning_tokens=reasoning,
    )
