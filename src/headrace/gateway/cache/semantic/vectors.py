"""Stores of questions: their vectors, each with the key of its answer."""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Protocol


class Near(NamedTuple):
    """The nearest stored question."""

    key: bytes
    """The key of its answer in the exact cache."""
    similarity: float
    """Cosine."""
    wording: bytes
    """Its wording, as stored."""


class Row(NamedTuple):
    """A question to store."""

    vector: bytes
    """Little-endian float32 of length 1."""
    key: bytes
    """The key of its answer."""
    wording: bytes
    """See `wording_of`."""


class Place(NamedTuple):
    """The place of a question in a store."""

    tenant: bytes
    """Whose entries are counted together."""
    bucket: bytes
    """Which questions may be compared."""


class VectorStore(Protocol):
    """A store of vectors. Entries may vanish at any time. now_s, expires_s: Unix time."""

    async def nearest(
        self, place: Place, vector: bytes, threshold: float, now_s: float
    ) -> Near | None:
        """The nearest question of the bucket above the threshold that has not expired."""

    def add(self, place: Place, row: Row, *, now_s: float, expires_s: float) -> None:
        """Store a question, at once or a moment later, replacing one with that key."""

    def drop(self, place: Place, key: bytes) -> None:
        """Remove a question whose answer is gone."""

    def close(self) -> None:
        """Close files and threads; afterwards nothing is found."""


def place_of(tenant: bytes, bucket: bytes, space: str) -> Place:
    """The place of a question. `space` names the embedding model, whose vectors are not comparable
    with those of another."""
    digest = hashlib.sha256(len(space).to_bytes(4, "big") + space.encode() + bucket)
    return Place(tenant, digest.digest())
