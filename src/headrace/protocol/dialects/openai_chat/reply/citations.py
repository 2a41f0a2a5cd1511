"""Citations in OpenAI's chats: annotations of URLs, and the lists that search models answer with.

OpenAI's `url_citation` lies one object deeper than in the Responses API. Perplexity and xAI list
the pages of an answer once, as `citations` and `search_results` of the whole reply; numbers in
brackets in the text say which of them a sentence is from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.protocol.dialects.openai_chat.values import mapping, objects, text
from headrace.protocol.neutral.citation import Citation, Source, span_of

WEB_PAGES: frozenset[Source] = frozenset(("url",))
_NUMBER = re.compile(r"\[([1-9][0-9]{0,2})\]")
# A reply that names more marks than this has them from its prompt.
_MOST_MARKS = 1000


def read_annotations(annotations: Iterable[dict[str, Any]]) -> tuple[Citation, ...]:
    """The citations among a message's annotations."""
    found = (read_annotation(annotation) for annotation in annotations)
    return tuple(citation for citation in found if citation is not None)


def read_annotation(annotation: dict[str, Any]) -> Citation | None:
    """An annotation of a URL, flat or one object deeper; None for another."""
    inner = annotation.get("url_citation")
    fields = inner if isinstance(inner, dict) else annotation
    url = text(fields.get("url"))
    if annotation.get("type") != "url_citation" or not url:
        return None
    start, end = span_of(fields.get("start_index"), fields.get("end_index"))
    return Citation(
        start=start,
        end=end,
        url=url,
        title=text(fields.get("title")) or None,
        quoted=text(fields.get("content")) or None,
    )


def listed_pages(reply: Mapping[str, Any]) -> tuple[Citation, ...]:
    """The pages that a reply or a chunk lists for all of its text."""
    results = objects(reply.get("search_results"))
    known = {text(result.get("url")): result for result in results}
    urls = reply.get("citations")
    named = [url for url in urls if isinstance(url, str)] if isinstance(urls, list) else []
    pages = []
    for url in named or known:
        result = mapping(known.get(url))
        title, quoted = text(result.get("title")), text(result.get("snippet"))
        if url:
            pages.append(Citation(url=url, title=title or None, quoted=quoted or None))
    return tuple(pages)


def cited_pages(
    words: str, pages: tuple[Citation, ...], *, marks_only: bool = False
) -> tuple[Citation, ...]:
    """A citation at each mark `[n]` in a text, then, for all of it, each page without a mark.

    Of several texts only one may have the latter, or a reply of many would multiply them.
    """
    found: list[Citation] = []
    marked: set[int] = set()
    for mark in _NUMBER.finditer(words) if pages else ():
        number = int(mark[1]) - 1
        if number < len(pages) and len(found) < _MOST_MARKS:
            marked.add(number)
            page = pages[number]
            found.append(
                Citation(
                    start=mark.start(),
                    end=mark.end(),
                    url=page.url,
                    title=page.title,
                    quoted=page.quoted,
                )
            )
    if marks_only:
        return tuple(found)
    return (*found, *(page for number, page in enumerate(pages) if number not in marked))


def write_annotation(citation: Citation, begins: int, length: int) -> dict[str, Any] | None:
    """An annotation; None for a source without a URL, for which chats have no form.

    `begins` is where the text of `length` characters begins in the message's content.
    """
    if not citation.url:
        return None
    start, end = citation.span(length)
    fields: dict[str, Any] = {
        "start_index": begins + start,
        "end_index": begins + end,
        "url": citation.url,
        "title": citation.title or "",
    }
    return {"type": "url_citation", "url_citation": fields}


def write_annotations(
    citations: Iterable[Citation], begins: int, length: int
) -> list[dict[str, Any]]:
    """The annotations that chats have a form for."""
    found = (write_annotation(citation, begins, length) for citation in citations)
    return [annotation for annotation in found if annotation is not None]
