"""Counts the result of a request for the A/B variant it was assigned to."""

from __future__ import annotations

from headrace.gateway.routing.variants import HEADER, Variants
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.incoming import Incoming


def note_side(variants: Variants, entry: Entry, incoming: Incoming) -> None:
    """Count a failure if no target answered, the answer was cut off, or another variant stood in.

    Cached answers, clients that left or were refused, and requests that chose their variant are not
    counted: those are not random samples.
    """
    if entry.cache or HEADER in incoming.headers:
        return
    if entry.outcome in ("answered", "cut", "failed"):
        failed = entry.outcome != "answered" or entry.variant != entry.assigned
        variants.ended(entry.assigned, failed=failed)
