"""Vectors in memory, for one process: a matrix for each bucket."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from headrace.gateway.cache.semantic.arithmetic import Matrix, row_of, similarities
from headrace.gateway.cache.semantic.vectors import Near, Place, Row

# Most buckets hold one question: a conversation that is unlike all others.
_FIRST_ROWS = 1
# Keys, slots in three tables, and numbers; measured on CPython 3.12.
_BESIDE_BYTES = 700

_Name = tuple[bytes, bytes]
"""Bucket and key."""


class _Bucket:
    """The rows of one bucket, without gaps: the last row replaces one that is dropped."""

    def __init__(self, dimensions: int) -> None:
        self.matrix: Matrix = np.empty((_FIRST_ROWS, dimensions), dtype=np.float32)
        self.expires_s = np.empty(_FIRST_ROWS, dtype=np.float64)
        self.keys: list[bytes] = []
        self.wordings: list[bytes] = []
        self.rows: dict[bytes, int] = {}

    def add(self, added: Row, expires_s: float) -> None:
        row = len(self.keys)
        if row == len(self.matrix):
            self.matrix = np.concatenate((self.matrix, np.empty_like(self.matrix)))
            self.expires_s = np.concatenate((self.expires_s, np.empty_like(self.expires_s)))
        self.matrix[row] = row_of(added.vector)
        self.expires_s[row] = expires_s
        self.keys.append(added.key)
        self.wordings.append(added.wording)
        self.rows[added.key] = row

    def drop(self, key: bytes) -> None:
        row, last, wording = self.rows.pop(key), self.keys.pop(), self.wordings.pop()
        if last != key:
            self.keys[row] = last
            self.wordings[row] = wording
            self.rows[last] = row
            self.matrix[row] = self.matrix[len(self.keys)]
            self.expires_s[row] = self.expires_s[len(self.keys)]
        if len(self.keys) <= len(self.matrix) // 4:
            half = len(self.matrix) // 2
            self.matrix = self.matrix[:half].copy()
            self.expires_s = self.expires_s[:half].copy()


class MemoryVectors:
    """A VectorStore in memory. Beyond max_entries of a tenant, or most_bytes in all, the least
    recently used entries are dropped."""

    def __init__(self, max_entries: int, most_bytes: int) -> None:
        self._max_entries = max_entries
        self._most_bytes = most_bytes
        self._buckets: dict[bytes, _Bucket] = {}
        self._of_tenant: dict[bytes, OrderedDict[_Name, None]] = {}
        self._oldest: OrderedDict[_Name, bytes] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._oldest)

    async def nearest(
        self, place: Place, vector: bytes, threshold: float, now_s: float
    ) -> Near | None:
        """See VectorStore."""
        bucket = self._buckets.get(place.bucket)
        count = 0 if bucket is None else len(bucket.keys)
        if bucket is None or not count or len(vector) != bucket.matrix.shape[1] * 4:
            return None
        cosines = similarities(bucket.matrix[:count], vector)
        cosines[bucket.expires_s[:count] <= now_s] = -1.0
        row = int(np.argmax(cosines))
        similarity = min(1.0, float(cosines[row]))
        if similarity < threshold:
            return None
        key = bucket.keys[row]
        self._oldest.move_to_end((place.bucket, key))
        self._of_tenant[place.tenant].move_to_end((place.bucket, key))
        return Near(key, similarity, bucket.wordings[row])

    def add(self, place: Place, row: Row, *, now_s: float, expires_s: float) -> None:
        """See VectorStore."""
        self.drop(place, row.key)
        size = _size(len(row.vector))
        if size > self._most_bytes or now_s >= expires_s:
            return
        bucket = self._buckets.get(place.bucket)
        if bucket is not None and len(row.vector) != bucket.matrix.shape[1] * 4:
            return  # the model changed its vectors under the same name
        own = self._of_tenant.get(place.tenant)
        if own is not None and len(own) >= self._max_entries:
            self._forget(place.tenant, next(iter(own)))
        while self._oldest and self.size_bytes + size > self._most_bytes:
            oldest, tenant = next(iter(self._oldest.items()))
            self._forget(tenant, oldest)
        bucket = self._buckets.setdefault(place.bucket, _Bucket(len(row.vector) // 4))
        bucket.add(row, expires_s)
        self._of_tenant.setdefault(place.tenant, OrderedDict())[place.bucket, row.key] = None
        self._oldest[place.bucket, row.key] = place.tenant
        self.size_bytes += size

    def drop(self, place: Place, key: bytes) -> None:
        """See VectorStore."""
        if (place.bucket, key) in self._oldest:
            self._forget(place.tenant, (place.bucket, key))

    def close(self) -> None:
        """See VectorStore."""
        self._buckets.clear()
        self._of_tenant.clear()
        self._oldest.clear()
        self.size_bytes = 0

    def _forget(self, tenant: bytes, name: _Name) -> None:
        bucket_name, key = name
        bucket = self._buckets[bucket_name]
        bucket.drop(key)
        self.size_bytes -= _size(bucket.matrix.shape[1] * 4)
        if not bucket.keys:
            del self._buckets[bucket_name]
        own = self._of_tenant[tenant]
        del own[name]
        if not own:
            del self._of_tenant[tenant]
        del self._oldest[name]


def _size(vector_bytes: int) -> int:
    """Bytes of a row; a matrix may be half empty."""
    return 2 * vector_bytes + _BESIDE_BYTES
