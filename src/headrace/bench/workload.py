"""What a run is to send: requests in order, with the lengths that were asked for.

A workload says nothing of when: the load (closed loop, arrivals, trace, sessions) gives each
request its time. Sources of prompts make these; the runner consumes them. Whoever makes prompts
takes a random source, so that the same seed gives the same workload.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from headrace.bench.client.prompt import Prompt


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    """One request to send.

    `at_ns` is its time in a trace, from the trace's start; None where the load decides. Items of
    one `session` are turns of one conversation: turn n+1 is sent `think_ns` after turn n has
    ended, with turn n's answer in its messages (the runner puts it in place of
    `AWAITED_ANSWER`). Token counts are what was aimed at, None where nobody aimed.
    """

    prompt: Prompt
    at_ns: int | None = None
    session: int | None = None
    turn: int = 0
    think_ns: int = 0
    prompt_tokens_asked: int | None = None
    output_tokens_asked: int | None = None


# Stands in the messages of a later turn where the answer to an earlier one belongs.
AWAITED_ANSWER = "\u0000answer\u0000"


class Tokenization(Protocol):
    """The part of a tokenizer that makers of prompts need."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> Sequence[int]:
        """Ids of plain text, without beginning or end tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; encoding it again may give other ids."""


class Workload(Protocol):
    """A source of requests. `fingerprint` names its contents: equal ones send the same bytes."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    def __len__(self) -> int:
        """How many different items there are; a run that needs more says that it repeats."""

    def __iter__(self) -> Iterator[WorkItem]: ...


def fingerprint_of(items: Iterable[WorkItem]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the items' JSON."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(msgspec.json.encode(item))
    return digest.hexdigest()[:16]
