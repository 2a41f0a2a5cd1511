"""The semantic cache with an embedder that is slow, fails, or is left alone."""

from __future__ import annotations

import asyncio

import numpy as np

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.cache.semantic.arithmetic import normalised
from headrace.gateway.cache.semantic.cache import (
    Embedded,
    EmbedderFailedError,
    LookUp,
    SemanticCache,
)
from headrace.gateway.cache.semantic.memory_vectors import MemoryVectors
from headrace.gateway.cache.semantic.question import Question, wording_of
from headrace.gateway.settings.cache import SemanticSettings

TEXT = "How do I get a refund?"
_VECTOR = normalised(np.array([1.0, 0.0], dtype="<f4").tobytes())
assert _VECTOR is not None
SAME = Embedded(_VECTOR, "e/m")


def question(text: str = TEXT, bucket: bytes = b"b") -> Question:
    return Question(text, b"t", bucket, wording_of(text))


class Slow:
    """An embedder that answers when it is told to; each call takes so many seconds of the clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.calls = 0
        self.takes_s = 0.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    def clock_s(self) -> float:
        return self.now_s

    async def __call__(self, text: str, caller: Caller | None, request_id: str) -> Embedded:
        self.calls += 1
        await self.gate.wait()
        self.now_s += self.takes_s
        if self.error is not None:
            raise self.error
        return SAME


def cache_of(embedder: Slow, timeout_s: float = 5.0) -> SemanticCache:
    settings = SemanticSettings(embedding_model="e", threshold=0.9, timeout_s=timeout_s)
    vectors = MemoryVectors(100, 2**20)
    return SemanticCache(settings, vectors, embedder, clock_s=embedder.clock_s)


async def asked(cache: SemanticCache, text: str = TEXT, bucket: bytes = b"b") -> LookUp | None:
    look_up = cache.begin(question(text, bucket), None, "r")
    if look_up is not None:
        await asyncio.wait((look_up.embedding,), timeout=0.1)
    return look_up


async def keep(cache: SemanticCache, look_up: LookUp, key: bytes) -> None:
    cache.keep(look_up, key, now_s=0.0, expires_s=100.0)
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_reordered_question_is_another_one() -> None:
    cache = cache_of(Slow())
    first = await asked(cache, "From Munich to Vienna, please")
    assert first is not None
    await keep(cache, first, b"k")
    again = await asked(cache, "A ticket to Vienna from Munich")
    assert again is not None
    near = await cache.find(again, 1.0)
    assert near is not None and near.key == b"k"
    back = await asked(cache, "from vienna to munich please")
    assert back is not None and await cache.find(back, 1.0) is None


async def test_a_failing_embedder_is_left_alone_and_comes_back() -> None:
    embedder = Slow()
    cache = cache_of(embedder)
    embedder.error = EmbedderFailedError("broken", is_callers=False)
    for _ in range(10):
        look_up = await asked(cache)
        assert look_up is None or await cache.find(look_up, 0.0) is None
    assert embedder.calls == 3
    embedder.error = None
    embedder.now_s += 1.1
    assert await asked(cache) is not None
    assert await asked(cache) is not None, "all at once again"


async def test_callers_own_limits_leave_it_alone_for_nobody() -> None:
    embedder = Slow()
    cache = cache_of(embedder)
    embedder.error = EmbedderFailedError("over budget", is_callers=True)
    for _ in range(10):
        assert await asked(cache) is not None
    assert embedder.calls == 10


async def test_one_that_is_always_late_is_left_alone_though_it_answers() -> None:
    embedder = Slow()
    cache = cache_of(embedder, timeout_s=0.005)
    embedder.takes_s = 0.1
    for _ in range(3):
        embedder.gate.clear()
        look_up = cache.begin(question(), None, "r")
        assert look_up is not None and await cache.find(look_up, 0.0) is None
        embedder.gate.set()
        await look_up.embedding
    assert cache.begin(question(), None, "r") is None


async def test_a_trial_whose_client_goes_is_no_end_of_trials() -> None:
    embedder = Slow()
    cache = cache_of(embedder)
    embedder.error = EmbedderFailedError("broken", is_callers=False)
    for _ in range(3):
        await asked(cache)
    embedder.error, embedder.takes_s = None, 50.0
    embedder.now_s += 1.1
    assert await asked(cache) is not None  # late, and nobody waited for it
    embedder.now_s += 31.0
    embedder.takes_s = 0.0
    assert await asked(cache) is not None


async def test_after_closing_nothing_is_asked_or_kept() -> None:
    embedder = Slow()
    cache = cache_of(embedder)
    look_up = await asked(cache)
    assert look_up is not None
    cache.close()
    await keep(cache, look_up, b"k")
    assert cache.begin(question(), None, "r") is None
    assert len(cache._vectors) == 0  # type: ignore[arg-type]
