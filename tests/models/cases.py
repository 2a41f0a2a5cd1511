"""The tiny models that are compared with transformers, and how a model is run over token ids."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.models import Model
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCodec, RaggedBatch
from tests.tiny import Family, tiny_config, tiny_weights
from tests.tiny_families import tiny_family, tiny_family_names

PROMPT_TOKENS = 70
"""Longer than one attention span; with the steps it crosses two of its boundaries."""

GREEDY_STEPS = 64


class Case(NamedTuple):
    """One model: family and the keywords of tiny_config."""

    family: Family
    shape: dict[str, Any]


CASES: dict[str, Case] = {
    name: Case(family, overrides)
    for family in tiny_family_names()
    for name, overrides in tiny_family(family).CASES.items()
}

FIRST_OF_FAMILY = tuple({case.family: name for name, case in reversed(CASES.items())}.values())
"""The case of each family that is compared with transformers as it is installed, that the slow
reference runs in several ways, and that files of every codec are written of."""

NOT_IN_GGUF = tuple(
    name
    for family in tiny_family_names()
    for name in getattr(tiny_family(family), "NOT_IN_GGUF", ())
)
IN_GGUF = tuple(name for name in CASES if name not in NOT_IN_GGUF)

BROKEN_RULES: list[tuple[str, dict[str, Any]]] = [
    rule
    for family in tiny_family_names()
    for rule in getattr(tiny_family(family), "BROKEN_RULES", ())
]
"""A case, and keys of its config: with their values it must be far from its golden."""

BROKEN_TENSORS: list[tuple[str, str]] = [
    rule
    for family in tiny_family_names()
    for rule in getattr(tiny_family(family), "BROKEN_TENSORS", ())
]
"""A case, and the end of tensors' names: with zeros in them it must be far from its golden."""


def prompt(seed: int, vocab: int = 288) -> list[int]:
    """Token ids of the case's prompt."""
    return [int(i) for i in np.random.default_rng([seed, 1]).integers(0, vocab, PROMPT_TOKENS)]


def weights_digest(case: Case, seed: int) -> str:
    """SHA-256 of the case's weights: goldens are of these and no others."""
    digest = hashlib.sha256()
    for name, values in tiny_weights(tiny_config(case.family, **case.shape), seed).items():
        digest.update(name.encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


class Session:
    """One request fed to a model piece by piece, in blocks that are not in order."""

    def __init__(
        self,
        model: Model,
        ops: Ops,
        *,
        capacity_tokens: int = 256,
        k_codec: KVCodec = "f32",
        v_codec: KVCodec = "f32",
    ) -> None:
        entries = -(-capacity_tokens // 16)
        layout = model.cache_layout
        blocks = (entries + 1) * layout.num_tables
        self._model = model
        self._ops = ops
        self._kv = ops.kv_cache(layout.spec(16, blocks, k_codec, v_codec))
        self._tables = layout.tables(np.arange(entries, 0, -1, dtype=np.int32)[None])
        self.length = 0

    def feed(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits f32[len(ids), vocab] of the next tokens."""
        count = len(ids)
        batch = RaggedBatch(
            token_ids=np.array(ids, np.int32),
            positions=np.arange(self.length, self.length + count, dtype=np.int32),
            query_start=np.array([0, count], np.int32),
            block_tables=self._tables,
            logit_rows=np.arange(count, dtype=np.int32),
        )
        self.length += count
        logits: npt.NDArray[np.float32] = self._ops.host(self._model.forward(batch, self._kv))
        return logits

    def feed_in_chunks(self, ids: Sequence[int], size: int) -> npt.NDArray[np.float32]:
        """The same logits, computed `size` tokens at a time."""
        pieces = [self.feed(ids[at : at + size]) for at in range(0, len(ids), size)]
        return np.concatenate(pieces)


def greedy(session: Session, prompt_ids: Sequence[int], steps: int) -> list[int]:
    """The most likely continuation, one token at a time."""
    ids = [int(session.feed(prompt_ids)[-1].argmax())]
    while len(ids) < steps:
        ids.append(int(session.feed(ids[-1:])[-1].argmax()))
    return ids
