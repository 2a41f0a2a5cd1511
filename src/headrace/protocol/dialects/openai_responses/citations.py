"""Citations in the Responses API: annotations of a text, of URLs and of files.

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
from headrace.protocol.dialects.openai_responses.values import text
from headrace.protocol.neutral.citation import Citation, span_of

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
