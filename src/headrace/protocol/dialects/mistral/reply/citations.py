"""Mistral's references: chunks of a content that name the sources of the text before them.

reference        reference_ids: numbers of documents in a tool's result
tool_reference   url and title of what a tool of Mistral's found
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from headrace.protocol.dialects.json_values import text
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.part import Text


def read_citations(chunk: dict[str, Any]) -> tuple[Citation, ...]:
    """The sources that a chunk names, without a span; () for another chunk."""
    ids = chunk.get("reference_ids")
    if chunk.get("type") == "reference" and isinstance(ids, list):
        numbers = [number for number in ids if isinstance(number, int | str)]
        return tuple(Citation(document=str(number)) for number in numbers)
    url, title = text(chunk.get("url")), text(chunk.get("title"))
    if chunk.get("type") == "tool_reference" and (url or title):
        return (Citation(url=url or None, title=title or None),)
    return ()


def write_text(part: Text) -> list[dict[str, Any]]:
    """The chunks of a text, with a reference where a passage ends whose documents have numbers."""
    numbered = [found for found in part.citations if _number(found) is not None]
    numbered.sort(key=lambda citation: citation.end or 0)
    chunks: list[dict[str, Any]] = []
    begin = 0
    for end, sources in groupby(numbered, key=lambda citation: citation.end or 0):
        if end > begin:
            chunks.append({"type": "text", "text": part.text[begin:end]})
            begin = end
        ids = [_number(citation) for citation in sources]
        chunks.append({"type": "reference", "reference_ids": ids})
    if begin < len(part.text) or not chunks:
        chunks.append({"type": "text", "text": part.text[begin:]})
    return chunks


def _number(citation: Citation) -> int | None:
    document = citation.document or ""
    is_number = document.isascii() and document.isdigit() and len(document) < 10
    return int(document) if is_number and not citation.url else None
