"""Cohere's citations: a span of the text, with its sources: documents, and results of tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.protocol.dialects.json_values import mapping, objects, text
from headrace.protocol.neutral.citation import Citation, span_of

_WORDS = ("snippet", "text", "content")


def read_citations(citations: Iterable[dict[str, Any]]) -> tuple[Citation, ...]:
    """One for each source of each span."""
    return tuple(
        _read(citation, source)
        for citation in citations
        for source in objects(citation.get("sources")) or [{}]
    )


def _read(citation: dict[str, Any], source: dict[str, Any]) -> Citation:
    start, end = span_of(citation.get("start"), citation.get("end"))
    fields = mapping(source.get("document")) or mapping(source.get("tool_output"))
    url = text(fields.get("url"))
    quoted = next((text(fields.get(name)) for name in _WORDS if text(fields.get(name))), None)
    return Citation(
        start=start,
        end=end,
        url=url or None,
        document=text(source.get("id")) or text(fields.get("id")) or None,
        title=text(fields.get("title")) or None,
        quoted=quoted,
    )
