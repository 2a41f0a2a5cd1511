"""Where stored responses are that clients continue (`previous_response_id`), and their tokens.

The provider that read and wrote a response bills it again as part of the next prompt, and is the
only one that has it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

MOST = 100_000


class ToldResponse(NamedTuple):
    """A stored response."""

    target: str
    """The name of the target that has it."""
    tokens: int | None
    """Tokens it read and wrote, with all that it continued; None if unknown."""


UNKNOWN = ToldResponse("", None)


class ToldResponses:
    """The stored responses of one process, bounded: the oldest is forgotten first."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._found: OrderedDict[bytes, ToldResponse] = OrderedDict()

    def told(self, id: str, response: ToldResponse) -> None:
        """Record a response whose id goes to a client; call again once more is known."""
        key = _key(id)
        self._found[key] = response
        self._found.move_to_end(key)
        while len(self._found) > self._most:
            self._found.popitem(last=False)

    def find(self, id: str) -> ToldResponse:
        """The response; UNKNOWN if it is older than a restart or of another process."""
        return self._found.get(_key(id), UNKNOWN)

    def __len__(self) -> int:
        return len(self._found)


def _key(id: str) -> bytes:
    """A key of fixed length, however long the provider's id is."""
    return hashlib.blake2b(id.encode(errors="surrogatepass"), digest_size=16).digest()
