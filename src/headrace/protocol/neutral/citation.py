"""The sources that a model names for what it wrote.

Vendors say the same in forms of their own: a page found on the web, a document of the request, a
file of the vendor's; for a span of the text, or for all of it; with the source's words or without.
A reader makes `Citation` of each, a writer puts it into the form of its dialect.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Source = Literal["url", "file", "document"]
EVERY_SOURCE: frozenset[Source] = frozenset(("url", "file", "document"))
NO_SOURCE: frozenset[Source] = frozenset()


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """A source for a passage of a Text."""

    start: int | None = None
    """Where the passage begins in its Text, in characters; None with `end` for all of the text."""
    end: int | None = None
    url: str | None = None
    file_id: str | None = None
    """The vendor's id of a file."""
    document: str | None = None
    """The id of a document of the request, or its number from 0."""
    title: str | None = None
    quoted: str | None = None
    """The source's own words."""

    @property
    def source(self) -> Source:
        """What it names: of several what most clients can follow."""
        if self.url:
            return "url"
        return "file" if self.file_id else "document"

    def span(self, length: int) -> tuple[int, int]:
        """The passage in a text of that many characters."""
        if self.start is None or self.end is None:
            return 0, length
        return self.start, self.end


def span_of(start: object, end: object) -> tuple[int | None, int | None]:
    """A span as a vendor gave it; of None where it is not one."""
    for place in (start, end):
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < 2**31:
            return None, None
    assert isinstance(start, int) and isinstance(end, int)
    return (start, end) if start <= end else (None, None)
