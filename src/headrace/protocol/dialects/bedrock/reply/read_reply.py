"""A whole answer of Converse, read. A citation has a source's title, its words and its place."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.protocol.dialects.bedrock.reply.usage import as_list, read_usage
from headrace.protocol.dialects.bedrock.values import (
    DIALECT,
    FORMATS,
    NOT_JSON,
    SERVER_TOOL_USE,
    SIGNER,
    encoded,
)
from headrace.protocol.dialects.json_values import mapping, objects, text
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish

_IN_DOCUMENT = ("documentChar", "documentPage", "documentChunk")


def read_citations(citations: Iterable[Any]) -> tuple[Citation, ...]:
    """Those of a text, each for all of it."""
    return tuple(_read(citation) for citation in citations if isinstance(citation, dict))


def _read(citation: dict[str, Any]) -> Citation:
    location = mapping(citation.get("location"))
    url = text(mapping(location.get("web")).get("url"))
    source = text(citation.get("source"))
    if not url and source.startswith(("http://", "https://")):
        url = source
    places = (mapping(location.get(name)).get("documentIndex") for name in _IN_DOCUMENT)
    index = next((place for place in places if isinstance(place, int)), None)
    quoted = "".join(text(piece.get("text")) for piece in objects(citation.get("sourceContent")))
    return Citation(
        url=url or None,
        document=source or (str(index) if index is not None else None),
        title=text(citation.get("title")) or None,
        quoted=quoted or None,
    )


CITATIONS = "bedrock_citations"

_FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "model_context_window_exceeded": "length",
}
# The model wrote what Bedrock could not make sense of: no answer, whatever came before it.
MALFORMED = frozenset(("malformed_model_output", "malformed_tool_use"))
# The reasons that their neutral word says all of.
_PLAIN = frozenset(("end_turn", "max_tokens", "tool_use"))
_ENDING_FIELDS = ("additionalModelResponseFields", "trace", "performanceConfig")
_MIMES = {
    kind: {word: mime for mime, word in reversed(formats.items())}
    for kind, formats in FORMATS.items()
}


def read_reply(body: bytes) -> ChatReply:
    """Raises DamagedReplyError if `body` is not an answer, or one that the model failed to write.

    Text that cites documents is Text with the citations, as Bedrock writes them, in its extra's
    "bedrock_citations". What tools of the provider did is Opaque. `trace` and other fields that
    came with it are in the choice's extra, and the stop reason where it says more than ours.
    """
    try:
        reply = msgspec.json.decode(body)
    except NOT_JSON as error:
        raise DamagedReplyError(f"the reply is not JSON: {error}") from None
    message = _object(_object(reply, "the reply").get("output"), "output").get("message")
    content = _object(message, "output.message").get("content")
    if not isinstance(content, list):
        raise DamagedReplyError("output.message.content is not a list")
    reason = reply.get("stopReason")
    if isinstance(reason, str) and reason in MALFORMED:
        raise DamagedReplyError(f"the model's output was malformed (stopReason {reason})")
    parts = (read_block(block) for block in content)
    choice = ending(reply, tuple(part for part in parts if part is not None))
    return ChatReply(
        dialect=DIALECT,
        id="",
        model="",
        choices=(choice,),
        usage=read_usage(reply.get("usage")),
        service_tier=read_tier(reply),
    )


def ending(fields: dict[str, Any], parts: tuple[Part, ...] = ()) -> Choice:
    """The choice with what is said of its end; `fields` of a reply or of a stream's last events.

    Raises DamagedReplyError without a stop reason.
    """
    reason = fields.get("stopReason")
    if not isinstance(reason, str):
        raise DamagedReplyError("stopReason is missing")
    extra = {name: fields[name] for name in _ENDING_FIELDS if fields.get(name) is not None}
    if reason not in _PLAIN:
        extra["stopReason"] = reason
    native = extra.get("additionalModelResponseFields")
    stop = native.get("stop_sequence") if isinstance(native, dict) else None
    return Choice(
        parts=parts,
        # A reason that is new to us ends an answer all the same.
        finish=_FINISHES.get(reason, "stop"),
        stop_sequence=stop if isinstance(stop, str) else None,
        extra=extra,
    )


def read_tier(fields: dict[str, Any]) -> str | None:
    """The service tier that was used, if reported."""
    tier = fields.get("serviceTier")
    kind = tier.get("type") if isinstance(tier, dict) else None
    return kind if isinstance(kind, str) else None


def read_block(block: Any) -> Part | None:
    """One content block; None for empty text. Raises DamagedReplyError."""
    told = _object(block, "a content block")
    fields = {name: value for name, value in told.items() if value is not None}
    if "text" in fields:
        text = _string(fields, "text")
        return Text(text=text) if text else None
    if "reasoningContent" in fields:
        return _thinking(_object(fields["reasoningContent"], "reasoningContent"))
    if "toolUse" in fields:
        return _tool_use(_object(fields["toolUse"], "toolUse"))
    if "citationsContent" in fields:
        return _cited(_object(fields["citationsContent"], "citationsContent"))
    for kind in ("image", "audio", "video"):
        if kind in fields:
            media = _object(fields[kind], kind)
            data = _object(media.get("source"), f"{kind}.source").get("bytes")
            if isinstance(data, str):
                return read_media(kind, media.get("format"), data)
    return Opaque(DIALECT, fields)


def read_media(kind: Any, word: Any, data: str) -> Media:
    """kind: "image", "audio" or "video"; word: Bedrock's for its format."""
    mime = _MIMES[kind].get(word, "") if isinstance(word, str) else ""
    return Media(kind=kind, mime=mime, data=data)


def redacted(content: bytes) -> Part:
    """Hidden thoughts. Bedrock's bytes are the text that Anthropic's own API has for them."""
    if content.isascii():
        return Thinking(text="", redacted=True, signature=Signature(SIGNER, content.decode()))
    hidden = base64.b64encode(content).decode()
    return Opaque(DIALECT, {"reasoningContent": {"redactedContent": hidden}})


def from_base64(value: Any, where: str) -> bytes:
    """Raises DamagedReplyError."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise DamagedReplyError(f"{where} is not base64") from None


def _thinking(fields: dict[str, Any]) -> Part | None:
    if "redactedContent" in fields:
        return redacted(from_base64(fields["redactedContent"], "redactedContent"))
    if "reasoningText" not in fields:
        return Opaque(DIALECT, {"reasoningContent": fields})
    told = _object(fields["reasoningText"], "reasoningText")
    signature = told.get("signature")
    signed = Signature(SIGNER, signature) if isinstance(signature, str) and signature else None
    text = _string(told, "text")
    return Thinking(text=text, signature=signed) if text or signed else None


def _tool_use(fields: dict[str, Any]) -> Part:
    if fields.get("type") == SERVER_TOOL_USE:
        return Opaque(DIALECT, {"toolUse": fields})
    arguments = encoded(fields.get("input", {})).decode()
    name = _string(fields, "name")
    if not name:
        raise DamagedReplyError("toolUse.name is empty")
    return ToolCall(id=_string(fields, "toolUseId"), name=name, arguments=arguments)


def _cited(fields: dict[str, Any]) -> Text:
    pieces = (
        block["text"]
        for block in as_list(fields.get("content"))
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    )
    citations = as_list(fields.get("citations"))
    return Text(
        text="".join(pieces),
        citations=read_citations(citations),
        extra={CITATIONS: citations} if citations else {},
    )


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DamagedReplyError(f"{where} is not an object")
    return value


def _string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise DamagedReplyError(f"{name} is not text")
    return value
