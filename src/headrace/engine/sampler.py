"""From logits to token ids: the draw of each row, the call of the backend, log probabilities.

A row's draw depends on (seed, choice, position) alone, so its token does not depend on the batch,
on chunks, on preemption or on what else runs. Log probabilities are of the raw distribution, before
temperature and filters. A row without a distribution (NaN) fails alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.engine.messages import TokenLogprob
from headrace.engine.request import Request
from headrace.ops.interface import Array, Ops, SamplingRows, UnusableLogitsError

LOGPROB_FLOOR = -9999.0
"""OpenAI's figure for "very unlikely"; JSON has no infinity."""

GREEDY_BELOW = 1e-6
"""Temperatures under this count as 0: every difference a float32 logit can show decides already,
and dividing by less would leave the range of float32."""

_COUNTER = struct.Struct("<QQQ")
_MASK_64 = (1 << 64) - 1
_TINY = np.finfo(np.float32).tiny


class Draw(NamedTuple):
    """What a row of a step came to: a token, an error, or neither where none was wanted yet."""

    token_id: int | None = None
    logprob: TokenLogprob | None = None
    error: str | None = None


NOT_YET = Draw()


class Sampler:
    """Draws the next tokens. num_tokens: ids below it are the tokenizer's; the rest is padding."""

    def __init__(self, ops: Ops, num_tokens: int) -> None:
        self._ops = ops
        self._num_tokens = num_tokens

    def sample(self, logits: Array, requests: Sequence[Request]) -> list[Draw]:
        """A token for each request from its row of logits f32[R, vocab].

        The backend refuses a row without a distribution; then each row is tried alone. Every other
        error is a bug and is raised: as a request's error it would look like a broken model.
        """
        try:
            return self._sample(logits, requests)
        except UnusableLogitsError as error:
            if len(requests) == 1:
                return [Draw(error=f"the model's output cannot be sampled from: {error}")]
        draws = []
        for row, request in enumerate(requests):
            alone = self._ops.take_rows(logits, np.array([row], np.int32))
            draws += self.sample(alone, [request])
        return draws

    def _sample(self, logits: Array, requests: Sequence[Request]) -> list[Draw]:
        chosen = self._ops.sample(logits, _sampling_rows(requests), self._num_tokens)
        wanted = {
            row: request.params.logprobs
            for row, request in enumerate(requests)
            if request.params.logprobs is not None
        }
        logprobs = self._logprobs(logits, chosen, wanted) if wanted else {}
        return [Draw(token_id, logprobs.get(row)) for row, token_id in enumerate(chosen.tolist())]

    def _logprobs(
        self, logits: Array, chosen: npt.NDArray[np.int32], wanted: dict[int, int]
    ) -> dict[int, TokenLogprob]:
        """Log probabilities of the rows in `wanted`, with as many rivals as each asks for."""
        rows = np.fromiter(wanted, np.int32, len(wanted))
        if len(rows) < len(chosen):
            logits = self._ops.take_rows(logits, rows)
            chosen = chosen[rows]
        most = min(max(wanted.values()), self._num_tokens)
        top = self._ops.top_logprobs(logits, chosen, most, self._num_tokens)
        token_ids, ranks, ids = chosen.tolist(), top.rank.tolist(), top.ids.tolist()
        own = np.maximum(top.chosen, LOGPROB_FLOOR).tolist()
        values = np.maximum(top.values, LOGPROB_FLOOR).tolist()
        return {
            row: TokenLogprob(
                token_id=token_ids[index],
                logprob=own[index],
                rank=ranks[index],
                top=list(zip(ids[index][:count], values[index][:count], strict=True)),
            )
            for index, (row, count) in enumerate(wanted.items())
        }


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits: a keyed counter, so any of them can be had directly.

    seed: any integer, taken modulo 2**64. position: of the token that is drawn, in its request.
    """
    counter = _COUNTER.pack(seed & _MASK_64, choice, position)
    bits = int.from_bytes(blake2b(counter, digest_size=8).digest(), "little")
    return (bits >> 11) * 2.0**-53


def _sampling_rows(requests: Sequence[Request]) -> SamplingRows:
    params = [request.params for request in requests]
    temperature = np.array([one.temperature for one in params], np.float32)
    temperature[temperature < GREEDY_BELOW] = 0.0
    draws = [
        uniform(request.seed, request.params.choice, request.num_wanted)
        if request.params.temperature >= GREEDY_BELOW
        else 0.0
        for request in requests
    ]
    return SamplingRows(
        temperature=temperature,
        top_k=np.array([min(max(one.top_k, 0), 0x7FFFFFFF) for one in params], np.int32),
        top_p=np.maximum(np.array([one.top_p for one in params], np.float32), _TINY),
        min_p=np.array([one.min_p for one in params], np.float32),
        uniform=np.array(draws, np.float64),
    )
