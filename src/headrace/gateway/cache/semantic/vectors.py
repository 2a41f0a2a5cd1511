"""Where questions are kept: their vectors, each with the key of its answer."""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Protocol


class Near(NamedTuple):
    """key: of the exact cache. similarity: cosine. wording: as it was put there."""

    key: bytes
    similarity: float
    wording: bytes


class Row(NamedTuple):
    """vector: little-endian float32 of length 1. key: of the answer. wording: see `wording_of`."""

    vector: bytes
    key: bytes
    wording: bytes


class Place(NamedTuple):
    """tenant: who is counted together. bucket: what may be compared."""

    tenant: bytes
    bucket: bytes


class VectorStore(Protocol):
    """As with a CacheStore nothing in it is ever missed. now_s, expires_s: Unix time."""

    async def nearest(
        self, place: Place, vector: bytes, threshold: float, now_s: float
    ) -> Near | None:
        """The nearest one of the bucket, if it is at least so near and has not expired."""

    def add(self, place: Place, row: Row, *, now_s: float, expires_s: float) -> None:
        """Keep it from now on or a moment later, in place of an earlier one with that key."""

    def drop(self, place: Place, key: bytes) -> None:
        """Its answer has gone."""

    def close(self) -> None:
        """Let go of files and threads; afterwards nothing is there."""


def place_of(tenant: bytes, bucket: bytes, space: str) -> Place:
    """space: what made the vector. Vectors of two models say nothing of each other."""
    digest = hashlib.sha256(len(space).to_bytes(4, "big") + space.encode() + bucket)
    return Place(tenant, digest.digest())
