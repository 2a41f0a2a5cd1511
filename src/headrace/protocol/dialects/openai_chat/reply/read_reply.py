"""A whole chat completion, from OpenAI or any server with its format.

Order of a choice's parts: thoughts, text, refusal, tool calls, sound, pictures; fields without a
neutral form are kept: of the reply in its `extra`, of a choice in the choice's, of its message
there under "message", of the usage in the reply's under "usage".
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.media import split_data_uri
from headrace.protocol.dialects.openai_chat.reply.citations import (
    cited_pages,
    listed_pages,
    read_annotations,
)
from headrace.protocol.dialects.openai_chat.reply.failures import failure_in
from headrace.protocol.dialects.openai_chat.reply.finish import finish_if_silent, read_finish
from headrace.protocol.dialects.openai_chat.reply.usage import find_usage, read_usage, usage_extra
from headrace.protocol.dialects.openai_chat.reply.write_part import is_custom_call
from headrace.protocol.dialects.openai_chat.request.read_message import (
    call_extra,
    made_id,
    read_arguments,
    read_thoughts,
    sign_message,
)
from headrace.protocol.dialects.openai_chat.thoughts import read_call_signature
from headrace.protocol.dialects.openai_chat.values import (
    DIALECT,
    NOT_JSON,
    decode,
    left_over,
    mapping,
    objects,
    text,
    whole,
)
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Media, Opaque, Part, Refusal, Text, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice

TOP = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "service_tier", "obfuscation", "error"}
)
CHOICE = frozenset(
    {"index", "message", "delta", "finish_reason", "logprobs", "usage", "error", "text"}
)
MESSAGE = frozenset(
    {
        "role",
        "content",
        "refusal",
        "tool_calls",
        "function_call",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "annotations",
        "images",
        "audio",
    }
)


def read_reply(body: bytes, *, gap_is_thoughts: bool = False) -> ChatReply:
    """Raises DamagedReplyError, with a failure where the body is an error after all."""
    try:
        decoded = decode(body)
    except NOT_JSON as error:
        raise DamagedReplyError(f"the reply is not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise DamagedReplyError("the reply is not a JSON object")
    return reply_of(decoded, gap_is_thoughts=gap_is_thoughts)


def reply_of(decoded: dict[str, Any], *, gap_is_thoughts: bool = False) -> ChatReply:
    """As `read_reply`, for decoded JSON."""
    usage = find_usage(decoded)
    took = read_usage(usage, gap_is_thoughts=gap_is_thoughts)
    tier = text(decoded.get("service_tier")) or None
    failure = failure_in(decoded)
    if failure is not None:
        told = f"the reply is an error: {failure.message}"
        raise DamagedReplyError(told, failure, took, tier)
    choices = objects(decoded.get("choices"))
    if not choices:
        raise DamagedReplyError("the reply has no choices", None, took, tier)
    reply_id = text(decoded.get("id"))
    try:
        pages = listed_pages(decoded)
        read = tuple(_read_choice(choice, at, reply_id, pages) for at, choice in enumerate(choices))
    except DamagedReplyError as error:
        raise DamagedReplyError(str(error), error.failure, took, tier) from None
    extra = left_over(decoded, TOP)
    more = usage_extra(usage)
    if more:
        extra["usage"] = more
    return ChatReply(
        dialect=DIALECT,
        id=reply_id,
        model=text(decoded.get("model")),
        choices=read,
        usage=took,
        created_s=whole(decoded.get("created")) or None,
        service_tier=tier,
        extra=extra,
    )


def _read_choice(
    choice: dict[str, Any], at: int, reply_id: str, pages: tuple[Citation, ...]
) -> Choice:
    failure = failure_in(choice)
    if failure is not None:
        raise DamagedReplyError(f"choices[{at}] is an error: {failure.message}", failure)
    message = choice.get("message")
    if message is None and choice.get("finish_reason"):
        message = {}  # Azure, where its filter took all of it
    if not isinstance(message, dict):
        raise DamagedReplyError(f"choices[{at}].message is not an object")
    index = whole(choice.get("index"))
    index = at if index is None or index < 0 else index
    rest = left_over(message, MESSAGE)
    parts = _read_parts(message, rest, (reply_id, index))
    if pages:
        _cite_pages(parts, pages)
    called = any(isinstance(part, ToolCall) or is_custom_call(part) for part in parts)
    finish = read_finish(choice.get("finish_reason"), has_tool_calls=called)
    if finish.failed is not None:
        word = text(choice.get("finish_reason"))
        raise DamagedReplyError(
            f"choices[{at}] ended with {word}",
            Failure(kind=finish.failed, message=f"the provider ended its answer with {word}"),
        )
    extra = finish.extra | left_over(choice, CHOICE)
    if rest:
        extra["message"] = rest
    stop = extra.get("stop_reason")
    stop_sequence = extra.pop("stop_reason") if isinstance(stop, str) else None
    logprobs = mapping(choice.get("logprobs"))
    listed = objects(logprobs.get("content")) or objects(logprobs.get("refusal"))
    return Choice(
        index=index,
        parts=tuple(parts),
        finish=finish.reason or finish_if_silent(called),
        stop_sequence=stop_sequence,
        logprobs=listed or None,
        extra=extra,
    )


def _read_parts(
    message: dict[str, Any], rest: dict[str, Any], where: tuple[str, int]
) -> list[Part]:
    parts: list[Part] = [*read_thoughts(message)]
    parts += read_reply_content(message.get("content"))
    annotations = objects(message.get("annotations"))
    if annotations and not _annotate(parts, annotations):
        rest["annotations"] = annotations
    refusal = text(message.get("refusal"))
    if refusal:
        parts.append(Refusal(refusal))
    calls = objects(message.get("tool_calls"))
    legacy = mapping(message.get("function_call"))
    if not calls and text(legacy.get("name")):
        calls = [{"function": legacy}]
    for number, call in enumerate(calls):
        parts += read_reply_call(call, (*where, number))
    parts += read_sound(mapping(message.get("audio")))
    parts += read_images(message.get("images"))
    return sign_message(parts, rest)


def read_reply_content(content: Any) -> list[Part]:
    """A string, or parts of text; anything else in a list is kept unchanged."""
    if isinstance(content, str):
        return [Text(text=content)] if content else []
    found: list[Part] = []
    for part in objects(content):
        if part.get("type", "text") == "text":
            words = text(part.get("text"))
            if words:
                found.append(Text(text=words, extra=left_over(part, frozenset({"type", "text"}))))
        elif part.get("type") == "image_url":
            found += read_images([part])
        else:
            found.append(Opaque(DIALECT, part))
    return found


def _annotate(parts: list[Part], annotations: list[dict[str, Any]]) -> bool:
    for at, part in enumerate(parts):
        if isinstance(part, Text):
            extra = {**part.extra, "annotations": annotations}
            citations = read_annotations(annotations)
            parts[at] = msgspec.structs.replace(part, extra=extra, citations=citations)
            return True
    return False


def _cite_pages(parts: list[Part], pages: tuple[Citation, ...]) -> None:
    """Texts without citations of their own cite the pages that the reply lists."""
    has_cited = False
    for at, part in enumerate(parts):
        if isinstance(part, Text) and not part.citations:
            citations = cited_pages(part.text, pages, marks_only=has_cited)
            has_cited = True
            parts[at] = msgspec.structs.replace(part, citations=citations)


def read_reply_call(call: dict[str, Any], where: tuple[object, ...]) -> list[Part]:
    """A tool call, made whole where a server leaves something out; [] for one without a name."""
    function = mapping(call.get("function"))
    name = text(function.get("name"))
    if not name:
        return [Opaque(DIALECT, call)] if call.get("type") == "custom" else []
    return [
        ToolCall(
            id=text(call.get("id")) or made_id(*where, name),
            name=name,
            arguments=read_arguments(function.get("arguments")),
            signature=read_call_signature(call),
            extra=call_extra(call),
        )
    ]


def read_sound(audio: dict[str, Any]) -> list[Part]:
    """Spoken words. extra: its id, when it expires, its transcript."""
    data = text(audio.get("data"))
    if not data:
        return []
    return [Media(kind="audio", data=data, extra=left_over(audio, frozenset({"data"})))]


def read_images(images: Any) -> list[Part]:
    """Pictures the model made, as OpenRouter lists them."""
    found: list[Part] = []
    for image in objects(images):
        value = image.get("image_url")
        url = text(value) or text(mapping(value).get("url"))
        if not url:
            continue
        split, signature = split_data_uri(url), read_call_signature(image)
        if split is None:
            found.append(Media(kind="image", url=url, signature=signature))
        else:
            mime, data = split
            found.append(Media(kind="image", mime=mime, data=data, signature=signature))
    return found
