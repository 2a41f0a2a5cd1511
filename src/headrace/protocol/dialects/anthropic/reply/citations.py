"""Citations in Anthropic's Messages: those of a text block are for all of its text.

    web_search_result_location   url, title, cited_text
    search_result_location       source (a URL or a name), title, cited_text
    char_location, page_location, content_block_location
                                 document_index, document_title, file_id, cited_text

A source of another vendor has a URL or is a document: it is written as the first or as
char_location, with the indices that the API requires and that nobody knows as 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from headrace.protocol.dialects.anthropic.values import text
from headrace.protocol.neutral.citation import Citation

_SEARCHED = ("web_search_result_location", "search_result_location")
_IN_DOCUMENT = ("char_location", "page_location", "content_block_location")
# An id may be any text; no request has as many documents as longer numbers say.
_INDEX = re.compile(r"[0-9]{1,9}")


def read_citations(citations: Iterable[Any]) -> tuple[Citation, ...]:
    """The citations of a text block."""
    found = (_read(citation) for citation in citations if isinstance(citation, dict))
    return tuple(citation for citation in found if citation is not None)


def _read(citation: dict[str, Any]) -> Citation | None:
    kind = citation.get("type")
    quoted = text(citation.get("cited_text")) or None
    if kind in _SEARCHED:
        place = text(citation.get("url")) or text(citation.get("source"))
        title = text(citation.get("title")) or None
        if place.startswith(("http://", "https://")):
            return Citation(url=place, title=title, quoted=quoted)
        return Citation(document=place, title=title, quoted=quoted) if place or title else None
    if kind not in _IN_DOCUMENT:
        return None
    index = citation.get("document_index")
    return Citation(
        file_id=text(citation.get("file_id")) or None,
        document=str(index) if isinstance(index, int) else None,
        title=text(citation.get("document_title")) or None,
        quoted=quoted,
    )


def write_citations(citations: Iterable[Citation]) -> list[dict[str, Any]]:
    """The citations of a text block."""
    return [_write(citation) for citation in citations]


def _write(citation: Citation) -> dict[str, Any]:
    quoted = citation.quoted or ""
    if citation.url:
        return {
            "type": "web_search_result_location",
            "cited_text": quoted,
            "url": citation.url,
            "title": citation.title,
            "encrypted_index": "",
        }
    document = citation.document or ""
    return {
        "type": "char_location",
        "cited_text": quoted,
        "document_index": int(document) if _INDEX.fullmatch(document) else 0,
        "document_title": citation.title or document or None,
        "file_id": citation.file_id,
        "start_char_index": 0,
        "end_char_index": len(quoted),
    }
