"""Where responses are stored that clients go on from (`previous_response_id`), and what they took.

A provider has read and written all of them before, bills that again as part of the next prompt, and
is the only one that knows them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

MOST = 100_000


class ToldResponse(NamedTuple):
    """target: the name of the one that has it. tokens: that it read and wrote, with all that it
    went on from; None where nobody here knows."""

    target: str
    tokens: int | None


UNKNOWN = ToldResponse("", None)


class ToldResponses:
    """Of one process. Bounded: the one that was told longest ago is forgotten first."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._found: OrderedDict[bytes, ToldResponse] = OrderedDict()

    def told(self, id: str, response: ToldResponse) -> None:
        """A client is told the id; again, once more is known of it."""
        key = _key(id)
        self._found[key] = response
        self._found.move_to_end(key)
        while len(self._found) > self._most:
            self._found.popitem(last=False)

    def find(self, id: str) -> ToldResponse:
        """UNKNOWN for one of before a restart, or of another process."""
        return self._found.get(_key(id), UNKNOWN)

    def __len__(self) -> int:
        return len(self._found)


def _key(id: str) -> bytes:
    """Short, whatever a provider calls it."""
    return hashlib.blake2b(id.encode(errors="surrogatepass"), digest_size=16).digest()
