"""Stores of vectors: the nearest one of a bucket, within their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.gateway.cache.semantic.arithmetic import normalised
from headrace.gateway.cache.semantic.memory_vectors import MemoryVectors
from headrace.gateway.cache.semantic.sqlite_vectors import SqliteVectors
from headrace.gateway.cache.semantic.vectors import Place, Row, place_of

A = Place(b"tenant a", b"bucket 1")
SAME_TENANT = Place(b"tenant a", b"bucket 2")
B = Place(b"tenant b", b"bucket 3")
Vectors = MemoryVectors | SqliteVectors


def vector(*values: float) -> bytes:
    found = normalised(np.array(values, dtype="<f4").tobytes())
    assert found is not None
    return found


X, Y, NEAR_X = vector(1, 0, 0), vector(0, 1, 0), vector(1, 0.1, 0)


@pytest.fixture(params=["memory", "sqlite"])
def vectors(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Vectors]:
    made: Vectors
    if request.param == "memory":
        made = MemoryVectors(3, 2**20)
    else:
        made = SqliteVectors(tmp_path / "v", 3, 2**20, most_wait_s=5.0)
    yield made
    made.close()


def add(vectors: Vectors, place: Place, one: bytes, key: str, at_s: float = 0.0) -> None:
    vectors.add(place, Row(one, key.encode(), b"w" + key.encode()), now_s=at_s, expires_s=100.0)


async def test_the_nearest_of_the_bucket_is_found(vectors: Vectors) -> None:
    add(vectors, A, X, "x")
    add(vectors, A, Y, "y")
    add(vectors, B, NEAR_X, "b")
    found = await vectors.nearest(A, NEAR_X, 0.9, 1.0)
    assert found is not None
    assert (found.key, found.wording) == (b"x", b"wx")
    assert found.similarity == pytest.approx(1 / np.sqrt(1.01), abs=1e-6)
    assert await vectors.nearest(A, NEAR_X, 0.999, 1.0) is None
    assert await vectors.nearest(SAME_TENANT, X, 0.0, 1.0) is None
    assert await vectors.nearest(A, X, 0.0, 100.0) is None, "expired"
    exact = await vectors.nearest(A, Y, 1.0 - 1e-6, 1.0)
    assert exact is not None and exact.key == b"y" and exact.similarity <= 1.0
    vectors.drop(A, b"y")
    vectors.drop(A, b"nobody's")
    assert await vectors.nearest(A, Y, 0.9, 1.0) is None


async def test_other_dimensions_are_never_compared(vectors: Vectors) -> None:
    add(vectors, A, X, "x")
    assert await vectors.nearest(A, vector(1, 0), 0.0, 1.0) is None


async def test_a_tenant_has_so_many_and_those_go_that_helped_longest_ago(vectors: Vectors) -> None:
    add(vectors, A, vector(1, 0, 0), "1", 1.0)
    add(vectors, SAME_TENANT, vector(0, 1, 0), "2", 2.0)
    add(vectors, A, vector(0, 0, 1), "3", 3.0)
    add(vectors, B, X, "b", 3.5)
    assert await vectors.nearest(A, X, 0.9, 4.0)
    if isinstance(vectors, SqliteVectors):
        await vectors.written()
    add(vectors, A, vector(-1, 0, 0), "4", 5.0)
    assert await vectors.nearest(SAME_TENANT, vector(0, 1, 0), 0.9, 6.0) is None, "the oldest"
    for one in (X, vector(0, 0, 1), vector(-1, 0, 0)):
        assert await vectors.nearest(A, one, 0.9, 6.0)
    assert await vectors.nearest(B, X, 0.9, 6.0), "another tenant's stay"


async def test_the_same_key_takes_its_own_place(vectors: Vectors) -> None:
    for _ in range(5):
        add(vectors, A, X, "x")
    add(vectors, A, Y, "y")
    add(vectors, A, Y, "x")
    assert await vectors.nearest(A, X, 0.5, 1.0) is None
    assert await vectors.nearest(A, Y, 0.5, 1.0)


async def test_memory_is_bounded_over_all_tenants_and_freed() -> None:
    vectors = MemoryVectors(1000, 20_000)
    values = np.random.default_rng(1).normal(size=(400, 8)).astype("<f4")
    for number, one in enumerate(values):
        place = Place(b"%d" % (number % 7), b"%d" % (number % 13))
        found = normalised(one.tobytes())
        assert found is not None
        vectors.add(place, Row(found, b"%d" % number, b""), now_s=0.0, expires_s=9.0)
        assert vectors.size_bytes <= 20_000
        near = await vectors.nearest(place, found, 0.999, 1.0)
        assert near is not None and near.key == b"%d" % number
    assert 20 < len(vectors) < 30
    for number in range(400):
        vectors.drop(Place(b"%d" % (number % 7), b"%d" % (number % 13)), b"%d" % number)
    assert (len(vectors), vectors.size_bytes) == (0, 0)


async def test_a_file_is_shared_and_for_nobody_else(tmp_path: Path) -> None:
    one, two = [SqliteVectors(tmp_path / "v", 10, 2**20, most_wait_s=5.0) for _ in "ab"]
    add(one, A, X, "x")
    await one.written()
    assert await two.nearest(A, X, 0.9, 1.0)
    assert (tmp_path / "v").stat().st_mode & 0o077 == 0
    (tmp_path / "other").write_bytes(b"not a database at all" * 50)
    bad = SqliteVectors(tmp_path / "other", 10, 2**20)
    add(bad, A, X, "x")
    assert await bad.nearest(A, X, 0.0, 1.0) is None
    for each in (one, two, bad):
        each.close()


def test_vectors_of_two_models_have_two_places_and_what_is_none_is_refused() -> None:
    assert place_of(b"t", b"b", "a/m") != place_of(b"t", b"b", "b/m")
    assert normalised(b"") is None and normalised(b"123") is None
    assert normalised(bytes(16)) is None
    assert normalised(np.array([1.0, np.nan], dtype="<f4").tobytes()) is None
