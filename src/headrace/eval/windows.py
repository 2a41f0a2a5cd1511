"""Text cut into windows as llama.cpp's perplexity tool does, and the logits of each.

The tokens of the text, begun as the tokenizer begins a text, are cut into windows of `context`;
what is left over at the end is dropped. The first token of every window is replaced by the
beginning-of-text token where the tokenizer sets one. Only the second half of a window is scored, so
that every scored token has at least half a window before it: logits of positions
[context / 2, context - 2] against the tokens after them. Windows do not see each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.config.settings import EngineConfig
from headrace.engine.memory.kv_memory import check_sliding, kinds_of, spec_of
from headrace.errors import ConfigError, HeadraceError
from headrace.models import Model
from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch
from headrace.ops.operands import Array

PIECE_TOKENS = 64
"""Positions whose logits are held at a time: 40 MB at a vocabulary of 151,936."""

BLOCK_TOKENS = 16

LARGEST_NATS = 709.0
"""Its exponential is about the largest float; beyond, math.exp raises."""


class Scored(NamedTuple):
    """Scored positions of one window: logits f32[n, vocab] and the tokens that follow."""

    window: int
    logits: Array
    """Of the backend."""
    values: npt.NDArray[np.float32]
    """The same in NumPy."""
    targets: npt.NDArray[np.int32]


def cut_windows(
    token_ids: Sequence[int], context: int, *, bos: int | None, limit: int | None = None
) -> list[list[int]]:
    """Whole windows of `context` tokens, at most `limit`.

    bos: what the first token of each is replaced by; None leaves it. Raises ConfigError where the
    text is shorter than one window or a window too short to score anything.
    """
    if context < 4:
        raise ConfigError(f"context is {context}; windows need at least 4 tokens")
    count = len(token_ids) // context
    if not count:
        raise ConfigError(
            f"the text has {len(token_ids)} tokens, fewer than one window of {context}; "
            "give more text or a smaller --context"
        )
    windows = []
    for index in range(count if limit is None else min(count, limit)):
        window = list(token_ids[index * context : (index + 1) * context])
        if bos is not None:
            window[0] = bos
        windows.append(window)
    return windows


class WindowRunner:
    """A runner that feeds windows to one model, one after another, over a KV cache of one window.

    cache: settings of an engine, of which those of what K and V are stored in count. By default
    they are the engine's own: bf16 unless the weights are F32.
    """

    def __init__(
        self,
        model: Model,
        ops: Ops,
        context: int,
        *,
        cache: EngineConfig | None = None,
    ) -> None:
        """Raises ConfigError for a context or a cache that the model cannot have."""
        if context > model.max_positions:
            raise ConfigError(
                f"--context {context} is more than the {model.max_positions} tokens that this "
                "model was made for; use fewer"
            )
        cache = cache or EngineConfig()
        check_sliding(cache, model.cache_layout)
        kinds = kinds_of(cache, model.weight_codec)
        entries = -(-context // BLOCK_TOKENS)
        layout = model.cache_layout.stored_as(kinds)
        blocks = entries * layout.num_tables
        self._model = model
        self._ops = ops
        self._kv = ops.kv_cache(spec_of(layout, kinds, BLOCK_TOKENS, blocks))
        self._tables = layout.tables(np.arange(entries, dtype=np.int32)[None])

    def run(self, index: int, window: Sequence[int]) -> Iterator[Scored]:
        """Logits of the scored positions, a piece at a time, in order.

        Raises HeadraceError where one of them is no finite number.
        """
        first = len(window) // 2
        ids = np.array(window, np.int32)
        # The last token's logits would be scored against the next window's first.
        for start in range(0, len(window) - 1, PIECE_TOKENS):
            end = min(start + PIECE_TOKENS, len(window) - 1)
            scored = np.arange(max(start, first), end, dtype=np.int32)
            logits = self._forward(ids, start, end, scored)
            values = self._ops.host(logits)
            if not np.isfinite(values).all():
                raise HeadraceError(
                    f"window {index}: a logit of positions {start} to {end - 1} is NaN or infinite;"
                    " the checkpoint is damaged, or its numbers are too large for this kind of "
                    "K and V (--kv-cache-dtype f32)"
                )
            if len(scored):
                yield Scored(index, logits, values, ids[scored + 1])

    def _forward(
        self, ids: npt.NDArray[np.int32], start: int, end: int, scored: npt.NDArray[np.int32]
    ) -> Array:
        batch = RaggedBatch(
            token_ids=ids[start:end],
            positions=np.arange(start, end, dtype=np.int32),
            query_start=np.array([0, end - start], np.int32),
            block_tables=self._tables,
            logit_rows=scored - np.int32(start),
        )
        return self._model.forward(batch, self._kv)


def exp_or_inf(nats: float) -> float:
    """exp, infinite where a float cannot hold it."""
    return math.exp(nats) if nats <= LARGEST_NATS else math.inf
