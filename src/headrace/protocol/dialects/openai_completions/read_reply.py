"""A whole completion, from OpenAI or an engine that has the API.

Fields without a neutral form are kept: of the reply in its `extra`, of a choice in the choice's
(an engine's `prompt_logprobs`, `token_ids`), of the usage in the reply's under "usage".
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_chat.reply.failures import failure_in
from headrace.protocol.dialects.openai_chat.reply.finish import read_finish
from headrace.protocol.dialects.openai_chat.reply.usage import find_usage, read_usage, usage_extra
from headrace.protocol.dialects.openai_chat.values import (
    NOT_JSON,
    decode,
    left_over,
    objects,
    text,
    whole,
)
from headrace.protocol.dialects.openai_completions.logprobs import read_columns
from headrace.protocol.dialects.openai_completions.values import DIALECT
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Text
from headrace.protocol.neutral.reply import ChatReply, Choice

TOP = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})
CHOICE = frozenset({"index", "text", "logprobs", "finish_reason", "stop_reason"})


def read_reply(body: bytes) -> ChatReply:
    """Raises DamagedReplyError if it is none."""
    try:
        reply = decode(body)
    except NOT_JSON as error:
        raise DamagedReplyError(f"not JSON: {error}") from None
    if not isinstance(reply, dict):
        raise DamagedReplyError("expected a JSON object")
    failure = failure_in(reply)
    if failure is not None:
        raise DamagedReplyError(failure.message, failure)
    listed = reply.get("choices")
    if not isinstance(listed, list):
        raise DamagedReplyError("choices is not a list")
    extra = left_over(reply, TOP)
    usage = find_usage(reply)
    if more := usage_extra(usage):
        extra["usage"] = more
    return ChatReply(
        dialect=DIALECT,
        id=text(reply.get("id")),
        model=text(reply.get("model")),
        choices=tuple(_choice(choice, at) for at, choice in enumerate(objects(listed))),
        usage=read_usage(usage),
        created_s=whole(reply.get("created")) or None,
        extra=extra,
    )


def index_of(choice: dict[str, Any], at: int) -> int:
    """A choice's number; its place in the list where it says none."""
    index = whole(choice.get("index"))
    return at if index is None or index < 0 else index


def _choice(choice: dict[str, Any], at: int) -> Choice:
    written = text(choice.get("text"))
    finish = read_finish(choice.get("finish_reason"), has_tool_calls=False)
    if finish.failed is not None:
        word = text(choice.get("finish_reason"))
        raise DamagedReplyError(
            f"choices[{at}] ended with {word}",
            Failure(kind=finish.failed, message=f"the provider ended its answer with {word}"),
        )
    return Choice(
        index=index_of(choice, at),
        parts=(Text(text=written),) if written else (),
        finish=finish.reason or "stop",
        stop_sequence=text(choice.get("stop_reason")) or None,
        logprobs=read_columns(choice.get("logprobs")) or None,
        extra=left_over(choice, CHOICE) | finish.extra,
    )
