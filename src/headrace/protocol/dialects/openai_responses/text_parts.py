"""Text of the model: content parts output_text and refusal, and the message around them.

What of a message has no neutral form is in the text's extra: "item_id" and "phase" are the
message's, every other field the content part's ("annotations" for one).
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.citations import read_citations, write_citations
from headrace.protocol.dialects.openai_responses.ids import foreign_id
from headrace.protocol.dialects.openai_responses.values import DIALECT, objects, rest, text
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.part import Opaque, Part, Refusal, Text

_OF_MESSAGE = ("item_id", "phase")
_KNOWN = frozenset({"type", "text", "annotations", "logprobs"})
_ANNOTATIONS = frozenset({"file_citation", "url_citation", "container_file_citation", "file_path"})


def message_extra(item: dict[str, Any]) -> dict[str, Any]:
    """The fields that a text keeps of its message."""
    extra: dict[str, Any] = {}
    if id := foreign_id(text(item.get("id"))):
        extra["item_id"] = id
    if phase := text(item.get("phase")):
        extra["phase"] = phase
    return extra


def content_extra(content: dict[str, Any]) -> dict[str, Any]:
    """The fields that a text keeps of its content part."""
    extra = rest(content, _KNOWN)
    if annotations := objects(content.get("annotations")):
        extra["annotations"] = annotations
    return extra


def content_part(content: dict[str, Any], item: dict[str, Any]) -> Part:
    """One content part of the model's message."""
    kind = content.get("type")
    if kind == "output_text":
        extra = message_extra(item) | content_extra(content)
        citations = read_citations(objects(content.get("annotations")))
        return Text(text=text(content.get("text")), citations=citations, extra=extra)
    if kind == "refusal":
        return Refusal(text(content.get("refusal")))
    return Opaque(DIALECT, {"content_part": content})


def message_parts(item: dict[str, Any]) -> list[Part]:
    """All content parts of the model's message."""
    return [content_part(one, item) for one in objects(item.get("content"))]


def written_text(
    words: str, extra: dict[str, Any], citations: tuple[Citation, ...] = (), *, own: bool
) -> dict[str, Any]:
    """The part output_text. own: `extra` was read from this dialect and goes back whole."""
    part: dict[str, Any] = {
        "type": "output_text",
        "annotations": read_annotations(extra) or write_citations(citations, len(words)),
        "text": words,
    }
    if own:
        part |= {
            name: one
            for name, one in extra.items()
            if name not in part and name not in _OF_MESSAGE and name != "role"
        }
    return part


def read_annotations(extra: dict[str, Any]) -> list[dict[str, Any]]:
    """A text's annotations in this API's form; OpenAI's chat has them one object deeper."""
    found = []
    for one in objects(extra.get("annotations")):
        kind = text(one.get("type"))
        inner = one.get(kind)
        if isinstance(inner, dict):
            one = {"type": kind, **inner}
        if kind in _ANNOTATIONS:
            found.append(one)
    return found
