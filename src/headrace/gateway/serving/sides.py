"""What a request tells of the side of an A/B test that it was given to."""

from __future__ import annotations

from headrace.gateway.routing.variants import HEADER, Variants
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.incoming import Incoming


def note_side(variants: Variants, entry: Entry, incoming: Incoming) -> None:
    """A side failed where nobody answered, half an answer came, or another side stood in for it.

    Nothing is learned from the gateway's own cache, from a client that goes or is refused, and from
    who chose its side: such requests are not drawn by chance.
    """
    if entry.cache or HEADER in incoming.headers:
        return
    if entry.outcome in ("answered", "cut", "failed"):
        failed = entry.outcome != "answered" or entry.variant != entry.assigned
        variants.ended(entry.assigned, failed=failed)
