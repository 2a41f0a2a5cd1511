"""Bedrock's citations: a source's title, its words, and where it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.protocol.dialects.json_values import mapping, objects, text
from headrace.protocol.neutral.citation import Citation

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
