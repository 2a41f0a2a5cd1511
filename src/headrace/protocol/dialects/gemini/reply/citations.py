"""What Google's search, maps and retrieval found, as citations.

groundingMetadata   groundingChunks: the sources (web, retrievedContext, maps); groundingSupports:
                    spans of the text, in bytes, each with the numbers of its sources
citationMetadata    spans that are word for word in a page that the model was trained on
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.json_values import mapping, objects, text
from headrace.protocol.neutral.citation import Citation

_KINDS = ("web", "retrievedContext", "maps")
# Each is looked for in all of the text.
_MOST_SPANS = 1000


def has_sources(candidate: dict[str, Any]) -> bool:
    """Whether `read_citations` may find any."""
    copied = mapping(candidate.get("citationMetadata"))
    return bool(
        mapping(candidate.get("groundingMetadata")).get("groundingChunks")
        or copied.get("citationSources")
        or copied.get("citations")
    )


def read_citations(candidate: dict[str, Any], words: str) -> tuple[Citation, ...]:
    """The citations of a candidate. `words`: its text so far, as far as it was kept."""
    grounding = mapping(candidate.get("groundingMetadata"))
    sources = [_source(chunk) for chunk in objects(grounding.get("groundingChunks"))]
    found: list[Citation] = []
    cited: set[int] = set()
    raw = words.encode(errors="replace") if sources else b""
    for support in objects(grounding.get("groundingSupports"))[:_MOST_SPANS]:
        start, end = _span(mapping(support.get("segment")), words, raw)
        numbers = support.get("groundingChunkIndices")
        for number in numbers if isinstance(numbers, list) else ():
            if isinstance(number, int) and 0 <= number < len(sources):
                cited.add(number)
                source = sources[number]
                found.append(
                    Citation(
                        start=start,
                        end=end,
                        url=source.url,
                        document=source.document,
                        title=source.title,
                        quoted=source.quoted,
                    )
                )
    found += [source for number, source in enumerate(sources) if number not in cited]
    return (*found, *_copied(mapping(candidate.get("citationMetadata")), words))


def _source(chunk: dict[str, Any]) -> Citation:
    fields = next((mapping(chunk.get(kind)) for kind in _KINDS if kind in chunk), {})
    uri = text(fields.get("uri"))
    is_url = uri.startswith(("http://", "https://"))
    return Citation(
        url=uri if is_url else None,
        document=None if is_url else uri or text(fields.get("documentName")) or None,
        title=text(fields.get("title")) or None,
        quoted=text(fields.get("text")) or None,
    )


def _span(segment: dict[str, Any], words: str, raw: bytes) -> tuple[int | None, int | None]:
    """A segment in characters: by its bytes where its text is there, else where its text is."""
    told = text(segment.get("text"))
    start, end = segment.get("startIndex", 0), segment.get("endIndex")
    if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= len(raw):
        piece = raw[start:end].decode(errors="replace")
        if not told or piece == told:
            first = len(raw[:start].decode(errors="replace"))
            return first, first + len(piece)
    at = words.find(told) if told else -1
    return (at, at + len(told)) if at >= 0 else (None, None)


def _copied(metadata: dict[str, Any], words: str) -> list[Citation]:
    sources = objects(metadata.get("citationSources")) or objects(metadata.get("citations"))
    raw = words.encode(errors="replace") if sources else b""
    found = []
    for source in sources[:_MOST_SPANS]:
        url = text(source.get("uri"))
        if url:
            start, end = _span(source, words, raw)
            title = text(source.get("title")) or None
            found.append(Citation(start=start, end=end, url=url, title=title))
    return found


def within(citation: Citation, begins: int) -> Citation:
    """The citation in a part that begins there in the text; one of an earlier part has no span."""
    if citation.start is None or citation.end is None:
        return citation
    is_earlier = citation.start < begins
    return msgspec.structs.replace(
        citation,
        start=None if is_earlier else citation.start - begins,
        end=None if is_earlier else citation.end - begins,
    )
