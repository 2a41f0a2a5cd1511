"""A workload whose requests have all been made, and what went otherwise than was asked.

Nothing is passed over in silence: prompts that could not be made as long as was asked are listed
with the length they have, and `notes` says what a reader of a file left out or did not use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import msgspec

from headrace.bench.workload import WorkItem, fingerprint_of


class Missed(msgspec.Struct, frozen=True):
    """A prompt that has another length than was asked, by the client's tokenizer."""

    index: int
    asked_tokens: int
    got_tokens: int


class MadeWorkload:
    """Items in the order in which they are to be sent."""

    def __init__(
        self,
        name: str,
        items: Iterable[WorkItem],
        *,
        missed: Iterable[Missed] = (),
        notes: Iterable[str] = (),
    ) -> None:
        self._name = name
        self.items = tuple(items)
        self.missed = tuple(missed)
        self.notes = tuple(notes)

    @property
    def name(self) -> str:
        """What a report calls it."""
        return self._name

    @cached_property
    def fingerprint(self) -> str:
        """Of the contents: equal ones send the same bytes."""
        return fingerprint_of(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(self.items)
