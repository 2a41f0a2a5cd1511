"""From logits to token ids: the draw of each row, the calls of the backend, log probabilities.

A row's draw depends on (seed, choice, position) alone and what is done to its logits on its own
parameters and tokens, so its token does not depend on the batch, on chunks, on preemption or on
what else runs. Log probabilities are of the raw distribution, before bias, masks, penalties,
temperature and filters. A row without a distribution (NaN, or all of it masked) fails alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.engine.grammars.constraint import Look
from headrace.engine.messages import NO_TOKEN_LEFT, TokenLogprob
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.sampling.logits_processor import LogitsProcessor, needs_logits_processor
from headrace.ops.interface import Ops
from headrace.ops.operands import Array
from headrace.ops.sampling_rows import (
    Chain,
    DrawHandle,
    LogprobQuery,
    SamplingRows,
    TopLogprobs,
    UnusableLogitsError,
)

LOGPROB_FLOOR = -9999.0
"""OpenAI's figure for "very unlikely"; JSON has no infinity."""

GREEDY_BELOW = 1e-6
"""Temperatures under this count as 0: every difference a float32 logit can show decides already,
and dividing by less would leave the range of float32."""

_COUNTER = struct.Struct("<QQQ")
_MASK_64 = (1 << 64) - 1
_TINY = np.finfo(np.float32).tiny


class DrawPosition(NamedTuple):
    """A position where a token is drawn: after a request's tokens, and then some drafts."""

    request: Request
    drafts: Sequence[int] = ()
    look: Look | None = None
    """What its grammar allows there, where it has one."""

    @property
    def length(self) -> int:
        """Tokens before it."""
        return len(self.request.token_ids) + len(self.drafts)

    @property
    def token_ids(self) -> list[int]:
        """Those tokens; a copy where there are drafts, which a long text makes expensive."""
        own = self.request.token_ids
        return [*own, *self.drafts] if self.drafts else own


class SampledToken(NamedTuple):
    """The result at one place of a step: a token, an error, or neither where nothing can follow."""

    token_id: int | None = None
    logprob: TokenLogprob | None = None
    error: str | None = None
    ends: bool = False
    """Nothing can follow what the request has: it ends with "stop" and without another token."""
    error_code: str | None = None
    """With `error`, where the request itself is at fault: the code of a RequestError."""


NOTHING_DRAWN = SampledToken()
"""Of a place behind a guess of which nothing is known: the row ends before it."""
PLAIN = LogitsProcessor(SamplingParams(), [], frozenset(), 0)
"""Of every request that asks for nothing of the kind."""


class _Batch(NamedTuple):
    """Rows to draw from."""

    logits: Array
    raw: Array | None
    """The rows of `wanted`, in its order, before they were adjusted; None where `logits` still are
    the model's."""
    rows: SamplingRows
    wanted: dict[int, int]
    """The number of rivals that are wanted, by row."""
    edited: Sequence[tuple[int, LogitsProcessor]] = ()
    """Rows that a request's own processor changed."""


class SampleHandle(NamedTuple):
    """Tokens that a device draws, of `places`."""

    places: Sequence[DrawPosition]
    drawing: DrawHandle
    wanted: dict[int, int]
    edited: Sequence[tuple[int, LogitsProcessor]]


class Sampler:
    """A sampler of the next tokens. num_tokens: ids below it are the tokenizer's; the rest is
    padding.
    """

    def __init__(self, ops: Ops, num_tokens: int) -> None:
        self._ops = ops
        self._num_tokens = num_tokens
        self._params: list[SamplingParams] = []
        self._rows = _rows_of([])
        """Of the requests with these parameters, which mostly are those of the next step too."""

    def sample(self, logits: Array, places: Sequence[DrawPosition]) -> list[SampledToken]:
        """A token for each place from its row of logits f32[R, vocab], which are changed.

        The backend refuses a row without a distribution; then each row is tried alone. Every other
        error is a bug and is raised: as a request's error it would look like a broken model.
        """
        batch = self._batch(logits, places)
        draws = self._draws(batch)
        self._say_why(draws, places, batch.edited)
        if batch.rows.masks:
            for row, place in enumerate(places):
                if place.look is not None and place.look.verdict != "open":
                    draws[row] = _verdict(place.look)
        return draws

    def begin(self, logits: Array, places: Sequence[DrawPosition]) -> SampleHandle:
        """Begin what `sample` does, of places without a grammar. `read` waits for it."""
        batch = self._batch(logits, places)
        wanted = None
        if batch.wanted:
            raw = batch.raw
            if raw is None:
                raw = self._ops.take_rows(logits, _indices(batch.wanted))
            most = min(max(batch.wanted.values()), self._num_tokens)
            wanted = LogprobQuery(_indices(batch.wanted), raw, most)
        drawing = self._ops.begin_draw(batch.logits, batch.rows, self._num_tokens, wanted)
        return SampleHandle(places, drawing, batch.wanted, batch.edited)

    def read(self, begun: SampleHandle) -> list[SampledToken]:
        """The tokens of a draw, once it is done, when those before it are their requests'."""
        drawn = begun.drawing.read()
        logprobs: dict[int, TokenLogprob] = {}
        if drawn.logprobs is not None:
            chosen = drawn.token_ids[_indices(begun.wanted)]
            entries = _entries(drawn.logprobs, chosen, list(begun.wanted.values()))
            logprobs = dict(zip(begun.wanted, entries, strict=True))
        draws = [
            SampledToken(token_id, logprobs.get(row))
            for row, token_id in enumerate(drawn.token_ids.tolist())
        ]
        for row, what in drawn.unusable.items():
            draws[row] = _unusable(UnusableLogitsError(0, what))
        self._say_why(draws, begun.places, begun.edited)
        return draws

    def _batch(self, logits: Array, places: Sequence[DrawPosition]) -> _Batch:
        """The rows as the requests want them; `logits` are changed."""
        wanted = {
            row: place.request.params.logprobs
            for row, place in enumerate(places)
            if place.request.params.logprobs is not None
        }
        raw = None
        chains: list[Chain | None] = []
        edited = [
            (row, processor, place)
            for row, place in enumerate(places)
            if (processor := place.request.logits_processor or self._processor_of(place.request))
            is not PLAIN
        ]
        if edited:
            made = [processor.edit(row, place.token_ids) for row, processor, place in edited]
            changes = [change for change in made if change is not None]
            if changes and wanted:
                raw = self._ops.take_rows(logits, _indices(wanted))
            self._ops.adjust(logits, changes)
            if any(processor.reorders for _, processor, _ in edited):
                chains = [None] * len(places)
                for row, processor, place in edited:
                    chains[row] = processor.chain(place.token_ids)
        looks = [place.look for place in places]
        masks = tuple(None if look is None else look.bits for look in looks) if any(looks) else ()
        rows = self._rows_at(places, tuple(chains), masks)
        named = [(row, processor) for row, processor, _ in edited]
        return _Batch(logits, raw, rows, wanted, named)

    def _say_why(
        self,
        draws: list[SampledToken],
        places: Sequence[DrawPosition],
        edited: Sequence[tuple[int, LogitsProcessor]],
    ) -> None:
        """Name the fields of a request that leave it no token."""
        for row, processor in edited:
            if draws[row].error is not None:
                draws[row] = _masked_out(processor, places[row]) or draws[row]

    def rate(
        self, logits: Array, token_ids: Sequence[int], num_top_logprobs: int
    ) -> list[SampledToken]:
        """The tokens that come whatever their rows of logits f32[R, vocab] are, each with its log
        probability; up to the first row without a distribution, which is an error."""
        try:
            scores = self.score(logits, token_ids, num_top_logprobs)
        except UnusableLogitsError as error:
            if len(token_ids) == 1:
                return [_unusable(error)]
            rated: list[SampledToken] = []
            for row, token_id in enumerate(token_ids):
                own = self._ops.take_rows(logits, _indices([row]))
                rated += self.rate(own, [token_id], num_top_logprobs)
                if rated[-1].error is not None:
                    break
            return rated
        return [SampledToken(score.token_id, score) for score in scores]

    def score(
        self, logits: Array, token_ids: Sequence[int], num_top_logprobs: int
    ) -> list[TokenLogprob]:
        """How likely each of `token_ids` was by its row of logits f32[R, vocab], with its rivals.

        One that is never drawn (padding of the vocabulary) has the floor and the rank after all
        others. Raises UnusableLogitsError for a row without a distribution.
        """
        chosen = np.array(token_ids, np.int32)
        drawn = chosen < self._num_tokens
        entries = self._entries(
            logits, np.where(drawn, chosen, np.int32(0)), [num_top_logprobs] * len(chosen)
        )
        for row in np.flatnonzero(~drawn).tolist():
            last = self._num_tokens + 1
            entries[row] = TokenLogprob(token_ids[row], LOGPROB_FLOOR, last, entries[row].top)
        return entries

    def _processor_of(self, request: Request) -> LogitsProcessor:
        request.logits_processor = PLAIN
        if needs_logits_processor(request.params):
            request.logits_processor = LogitsProcessor(
                request.params,
                request.token_ids[: request.num_prompt],
                request.end_ids,
                self._num_tokens,
                request.thinking,
            )
        return request.logits_processor

    def _rows_at(
        self,
        places: Sequence[DrawPosition],
        chains: tuple[Chain | None, ...],
        masks: tuple[npt.NDArray[np.uint32] | None, ...],
    ) -> SamplingRows:
        params = [place.request.params for place in places]
        if params != self._params:
            self._params, self._rows = params, _rows_of(params)
        draws = [
            uniform(place.request.seed, place.request.params.choice, place.length)
            if place.request.params.temperature >= GREEDY_BELOW
            else 0.0
            for place in places
        ]
        if not chains and not masks and not any(draws):
            return self._rows  # greedy: its random numbers are 0 already
        return replace(self._rows, uniform=np.array(draws, np.float64), chains=chains, masks=masks)

    def _draws(self, batch: _Batch) -> list[SampledToken]:
        count = len(batch.rows.uniform)
        try:
            chosen = self._ops.sample(batch.logits, batch.rows, self._num_tokens)
            logprobs = self._logprobs(batch, chosen) if batch.wanted else {}
        except UnusableLogitsError as error:
            if count == 1:
                return [_unusable(error)]
            return [self._draws(self._alone(batch, row))[0] for row in range(count)]
        return [
            SampledToken(token_id, logprobs.get(row))
            for row, token_id in enumerate(chosen.tolist())
        ]

    def _alone(self, batch: _Batch, row: int) -> _Batch:
        wanted, raw = batch.wanted, batch.raw
        if raw is not None and row in wanted:
            raw = self._ops.take_rows(raw, _indices([list(wanted).index(row)]))
        return _Batch(
            self._ops.take_rows(batch.logits, _indices([row])),
            raw,
            SamplingRows(
                temperature=batch.rows.temperature[row : row + 1],
                top_k=batch.rows.top_k[row : row + 1],
                top_p=batch.rows.top_p[row : row + 1],
                min_p=batch.rows.min_p[row : row + 1],
                uniform=batch.rows.uniform[row : row + 1],
                chains=batch.rows.chains[row : row + 1],
                masks=batch.rows.masks[row : row + 1],
            ),
            {0: wanted[row]} if row in wanted else {},
        )

    def _logprobs(self, batch: _Batch, chosen: npt.NDArray[np.int32]) -> dict[int, TokenLogprob]:
        """Log probabilities of the rows in `wanted`, with as many rivals as each asks for."""
        wanted, logits = batch.wanted, batch.logits
        rows = _indices(wanted)
        if batch.raw is not None:
            logits = batch.raw
        elif len(rows) < len(chosen):
            logits = self._ops.take_rows(logits, rows)
        entries = self._entries(logits, chosen[rows], list(wanted.values()))
        return dict(zip(wanted, entries, strict=True))

    def _entries(
        self, logits: Array, chosen: npt.NDArray[np.int32], num_top_logprobs: Sequence[int]
    ) -> list[TokenLogprob]:
        """Of each row, how likely its chosen token was and so many of the likeliest."""
        most = min(max(num_top_logprobs), self._num_tokens)
        top = self._ops.top_logprobs(logits, chosen, most, self._num_tokens)
        return _entries(top, chosen, num_top_logprobs)


def _entries(
    top: TopLogprobs, chosen: npt.NDArray[np.int32], num_top_logprobs: Sequence[int]
) -> list[TokenLogprob]:
    """Of each row, its own token's and so many of the likeliest."""
    token_ids, ranks, ids = chosen.tolist(), top.rank.tolist(), top.ids.tolist()
    own = np.maximum(top.chosen, LOGPROB_FLOOR).tolist()
    values = np.maximum(top.values, LOGPROB_FLOOR).tolist()
    return [
        TokenLogprob(
            token_id=token_ids[row],
            logprob=own[row],
            rank=ranks[row],
            top=list(zip(ids[row][:count], values[row][:count], strict=True)),
        )
        for row, count in enumerate(num_top_logprobs)
    ]


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits: a keyed counter, so any of them can be had directly.

    seed: any integer, taken modulo 2**64. position: of the token that is drawn, in its request.
    """
    counter = _COUNTER.pack(seed & _MASK_64, choice, position)
    bits = int.from_bytes(blake2b(counter, digest_size=8).digest(), "little")
    return (bits >> 11) * 2.0**-53


def _unusable(error: UnusableLogitsError) -> SampledToken:
    return SampledToken(error=f"the model's output cannot be sampled from: {error}")


def _masked_out(processor: LogitsProcessor, place: DrawPosition) -> SampledToken | None:
    """The error of a row that has no distribution because the request leaves it none."""
    fields = processor.masks_all(place.token_ids, None if place.look is None else place.look.bits)
    if not fields:
        return None
    count = place.length - place.request.num_prompt
    return SampledToken(
        error=f"{', '.join(fields)}: no token is left to come after {count} tokens of the answer; "
        f"allow more, or omit {'one of them' if len(fields) > 1 else 'it'}",
        error_code=NO_TOKEN_LEFT,
    )


def _verdict(look: Look) -> SampledToken:
    """Of a row whose grammar leaves nothing to draw: what was drawn freely does not count."""
    if look.verdict == "ended":
        return SampledToken(ends=True)
    if look.verdict == "unknown":
        return NOTHING_DRAWN
    return SampledToken(error=look.error, error_code=look.error_code)


def _indices(rows: Iterable[int]) -> npt.NDArray[np.int32]:
    return np.array(list(rows), np.int32)


def _rows_of(params: Sequence[SamplingParams]) -> SamplingRows:
    """The parameters of rows, without their random numbers."""
    temperature = np.array([each.temperature for each in params], np.float32)
    temperature[temperature < GREEDY_BELOW] = 0.0
    return SamplingRows(
        temperature=temperature,
        top_k=np.array([min(max(each.top_k, 0), 0x7FFFFFFF) for each in params], np.int32),
        top_p=np.maximum(np.array([each.top_p for each in params], np.float32), _TINY),
        min_p=np.array([each.min_p for each in params], np.float32),
        uniform=np.zeros(len(params)),
    )
