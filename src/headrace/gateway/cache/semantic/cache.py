"""The semantic cache: a question of the same meaning as an earlier one gets its answer.

It stores questions and the keys of their answers; the answers are in the exact cache. A question is
embedded by a configured model, charged to the caller's account. A failure or a timeout is a miss.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.cache.breaker import Breaker
from headrace.gateway.cache.semantic.question import Question, is_reordered
from headrace.gateway.cache.semantic.vectors import Near, Place, Row, VectorStore, place_of
from headrace.gateway.settings.cache import SemanticSettings

logger = logging.getLogger(__name__)

# Beyond this questions are not looked up: an embedder that hangs must not pile up tasks.
_MOST_EMBEDDING = 256


class Embedded(NamedTuple):
    """A vector of length 1 as little-endian float32, and the name of its vector space."""

    vector: bytes
    space: str


class Embedder(Protocol):
    """A source of vectors of questions."""

    async def __call__(self, text: str, caller: Caller | None, request_id: str) -> Embedded:
        """Embed a text; writes a ledger line for the caller. Raises EmbedderFailedError."""


class EmbedderFailedError(Exception):
    """A vector that could not be made. `is_callers` says that the caller's limits are why: nothing
    is broken.
    """

    def __init__(self, message: str, *, is_callers: bool) -> None:
        super().__init__(message)
        self.is_callers = is_callers


class LookUp:
    """The look-up of one question."""

    def __init__(self, question: Question, embedding: asyncio.Task[Embedded | None]) -> None:
        self.question = question
        self.embedding = embedding

    def place(self, embedded: Embedded) -> Place:
        """Its place among other questions."""
        return place_of(self.question.tenant, self.question.bucket, embedded.space)


class SemanticCache:
    """A cache of answers by the meaning of questions; `clock_s` is a monotonic clock."""

    def __init__(
        self,
        settings: SemanticSettings,
        vectors: VectorStore,
        embedder: Embedder,
        *,
        clock_s: Callable[[], float],
    ) -> None:
        self.settings = settings
        self._vectors = vectors
        self._embedder = embedder
        self._clock_s = clock_s
        self._breaker = Breaker(clock_s)
        self._embedding: set[asyncio.Task[Embedded | None]] = set()
        self._is_closed = False

    def begin(self, question: Question, caller: Caller | None, request_id: str) -> LookUp | None:
        """Start embedding a question; None while the embedder is left alone.

        The embedding goes on when the request no longer waits for it: it is billed anyway, and its
        vector is needed when the answer is stored.
        """
        if self._is_closed or len(self._embedding) >= _MOST_EMBEDDING:
            return None
        if not self._breaker.lets_through():
            return None
        embedding = asyncio.get_running_loop().create_task(
            self._embed(question.text, caller, request_id)
        )
        self._embedding.add(embedding)
        embedding.add_done_callback(self._embedding.discard)
        return LookUp(question, embedding)

    async def find(self, look_up: LookUp, now_s: float) -> Near | None:
        """The key of an answer to a question of the same meaning."""
        done, _ = await asyncio.wait((look_up.embedding,), timeout=self.settings.timeout_s)
        if not done:
            self._failed(f"no vector within {self.settings.timeout_s:g} s")
            return None
        embedded = _vector_of(look_up.embedding)
        if embedded is None:
            return None
        near = await self._vectors.nearest(
            look_up.place(embedded), embedded.vector, self.settings.threshold, now_s
        )
        if near is None or is_reordered(near.wording, look_up.question.wording):
            return None
        return near

    def keep(self, look_up: LookUp, key: bytes, *, now_s: float, expires_s: float) -> None:
        """Use the answer under the key for questions of the same meaning."""
        if self.settings.ttl_s is not None:
            expires_s = min(expires_s, now_s + self.settings.ttl_s)

        def add(embedding: asyncio.Task[Embedded | None]) -> None:
            embedded = _vector_of(embedding)
            if embedded is not None and not self._is_closed:
                row = Row(embedded.vector, key, look_up.question.wording)
                self._vectors.add(look_up.place(embedded), row, now_s=now_s, expires_s=expires_s)

        look_up.embedding.add_done_callback(add)

    def forget(self, look_up: LookUp, key: bytes) -> None:
        """Drop a question whose answer is no longer stored."""
        embedded = _vector_of(look_up.embedding)
        if embedded is not None:
            self._vectors.drop(look_up.place(embedded), key)

    def close(self) -> None:
        """Close the store; nothing is found afterwards. Embeddings under way end on their own."""
        self._is_closed = True
        self._vectors.close()

    async def _embed(self, text: str, caller: Caller | None, request_id: str) -> Embedded | None:
        began_s = self._clock_s()
        try:
            embedded = await self._embedder(text, caller, request_id)
        except EmbedderFailedError as error:
            if error.is_callers:
                self._breaker.did_not_count()
            else:
                self._failed(str(error))
            return None
        except BaseException:
            self._breaker.did_not_count()
            raise
        if self._clock_s() - began_s <= self.settings.timeout_s:
            self._breaker.succeeded()
        else:  # counted as a failure when the wait for it ended, if there was one
            self._breaker.did_not_count()
        return embedded

    def _failed(self, why: str) -> None:
        if self._breaker.failed():
            logger.warning(
                "the embedder %s fails; questions are not compared for a while: %s",
                self.settings.embedding_model,
                why,
            )


def _vector_of(embedding: asyncio.Task[Embedded | None]) -> Embedded | None:
    if not embedding.done() or embedding.cancelled() or embedding.exception() is not None:
        return None
    return embedding.result()
