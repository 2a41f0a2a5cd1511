"""What came when: output tokens and answers over the time of a run, for every reader the same.

Tokens are of every stream that was sent, however it ended: what the end of a run cut off was made
by the server all the same. Where nobody counted such a stream it is taken to have as many tokens
for its characters as the run's counted ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.bench.concurrency import Window
from headrace.bench.definitions.measure import completed
from headrace.bench.definitions.tokens import chunk_tokens, streamed_tokens
from headrace.bench.record import Chunk, RequestRecord
from headrace.bench.statistics import Samples

_NS_PER_S = 1e9


def token_moments(records: Sequence[RequestRecord]) -> tuple[Samples, Samples]:
    """When content came [ns], and how many tokens."""
    pace = _tokens_per_character(records)
    at: list[int] = []
    tokens: list[int] = []
    for record in records:
        content = record.content
        at += [chunk.at_ns for chunk in content]
        tokens += chunk_tokens(content, _total(record, content, pace))
    return np.asarray(at, dtype=np.float64), np.asarray(tokens, dtype=np.float64)


def answer_moments(records: Sequence[RequestRecord]) -> tuple[Samples, Samples]:
    """When requests that completed ended [ns], each counting 1."""
    at = [record.end_ns for record in records if completed(record)]
    return np.asarray(at, dtype=np.float64), np.ones(len(at))


def per_s(moments: tuple[Samples, Samples], window: Window) -> Samples:
    """What came in each of the window's slots, per second: their mean is that of the window.

    Slots are equal and as many as the window has whole seconds, at least 1. What came at the
    window's start is not in it, what came at its end is. Empty of a window without length.
    """
    if window.seconds <= 0:
        return np.empty(0)
    at, weights = moments
    slots = max(1, int(window.seconds))
    width_s = window.seconds / slots
    inside = (at > window.start_ns) & (at <= window.end_ns)
    nth = np.ceil((at[inside] - window.start_ns) / _NS_PER_S / width_s).astype(np.int64) - 1
    counted = np.bincount(np.clip(nth, 0, slots - 1), weights=weights[inside], minlength=slots)
    return counted.astype(np.float64) / width_s


def _total(record: RequestRecord, content: tuple[Chunk, ...], pace: float | None) -> int | None:
    """Tokens that the stream carried; None where the chunks tell it, or nobody knows.

    Of a stream that broke off what the server counted last is of an earlier moment.
    """
    if record.failure is None:
        return streamed_tokens(record)
    if record.client_output_tokens is not None:
        return record.client_output_tokens
    if pace is None or all(chunk.tokens is not None for chunk in content):
        return None
    return max(1, round(pace * sum(len(chunk.text) for chunk in content)))


def _tokens_per_character(records: Sequence[RequestRecord]) -> float | None:
    tokens = characters = 0
    for record in records:
        total = streamed_tokens(record) if record.failure is None else None
        if total is not None:
            tokens += total
            characters += sum(len(chunk.text) for chunk in record.content)
    return tokens / characters if characters else None
