"""Text of the model: content parts output_text and refusal, and the message around them.

What of a message has no neutral form is in the text's extra: "item_id" and "phase" are the
message's, every other field the content part's ("annotations" for one). Citations are annotations
of a text, of URLs and of files:

    url_citation             start_index, end_index, url, title
    file_citation            file_id, filename, index: where in the text
    container_file_citation  the same with start_index, end_index and container_id
    file_path                file_id, index: a file that the model made

A document of the request, which this API does not have, is written as a file of that id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.protocol.dialects.openai_chat.reply.citations import read_annotation as read_url
from headrace.protocol.dialects.openai_responses.ids import foreign_id
from headrace.protocol.dialects.openai_responses.values import DIALECT, objects, rest, text
from headrace.protocol.neutral.citation import Citation, span_of
from headrace.protocol.neutral.part import Opaque, Part, Refusal, Text

_FILES = ("file_citation", "container_file_citation", "file_path")


def read_citations(annotations: Iterable[dict[str, Any]]) -> tuple[Citation, ...]:
    """The citations among a text's annotations."""
    found = (_read(annotation) for annotation in annotations)
    return tuple(citation for citation in found if citation is not None)


def _read(annotation: dict[str, Any]) -> Citation | None:
    if annotation.get("type") not in _FILES:
        return read_url(annotation)
    file_id = text(annotation.get("file_id"))
    if not file_id:
        return None
    index = annotation.get("index")
    start, end = span_of(annotation.get("start_index", index), annotation.get("end_index", index))
    return Citation(
        start=start, end=end, file_id=file_id, title=text(annotation.get("filename")) or None
    )


def write_citations(citations: Iterable[Citation], length: int) -> list[dict[str, Any]]:
    """Annotations of a text of that many characters."""
    return [_write(citation, length) for citation in citations]


def _write(citation: Citation, length: int) -> dict[str, Any]:
    start, end = citation.span(length)
    if citation.url:
        return {
            "type": "url_citation",
            "start_index": start,
            "end_index": end,
            "url": citation.url,
            "title": citation.title or "",
        }
    return {
        "type": "file_citation",
        "file_id": citation.file_id or citation.document or "",
        "filename": citation.title or citation.document or "",
        "index": end,
    }


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
    return [content_part(content, item) for content in objects(item.get("content"))]


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
            name: value
            for name, value in extra.items()
            if name not in part and name not in _OF_MESSAGE and name != "role"
        }
    return part


def read_annotations(extra: dict[str, Any]) -> list[dict[str, Any]]:
    """A text's annotations in this API's form; OpenAI's chat has them one object deeper."""
    found = []
    for annotation in objects(extra.get("annotations")):
        kind = text(annotation.get("type"))
        inner = annotation.get(kind)
        if isinstance(inner, dict):
            annotation = {"type": kind, **inner}
        if kind in _ANNOTATIONS:
            found.append(annotation)
    return found
