"""A request's logits do not depend on its company, its chunks or its blocks, in any codec."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from headrace.models import Model, load_model
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCodec, RaggedBatch
from tests.models.cases import Session
from tests.tiny import Family, tiny_checkpoint
from tests.tiny_families import tiny_family_names

LENGTHS = (1, 17, 90, 40)
# Tokens of a step: less than a request each, and most of them together.
BUDGETS = (5, 64)
CODECS: tuple[tuple[str, KVCodec], ...] = (
    ("F32", "f32"), ("F16", "bf16"), ("BF16", "bf16"), ("Q8_0", "bf16"),
)  # fmt: skip
RUNS = [(family, *codecs) for family in ("llama", "qwen3") for codecs in CODECS]
# What the others have more is not of the codec, so one of them will do.
RUNS += [
    (family, "Q8_0", "bf16") for family in tiny_family_names() if family not in ("llama", "qwen3")
]


def run_mixed(
    model: Model, ops: Ops, requests: list[list[int]], kv_codec: KVCodec, budget: int
) -> list[npt.NDArray[np.float32]]:
    """All requests together, `budget` tokens a step, in turns, logits of every token."""
    layout = model.cache_layout
    kv = ops.kv_cache(layout.spec(16, 40 * layout.num_tables, kv_codec, kv_codec))
    tables = np.random.default_rng(0).permutation(np.arange(1, 33, dtype=np.int32)).reshape(4, 8)
    done = [0] * len(requests)
    logits: list[list[npt.NDArray[np.float32]]] = [[] for _ in requests]
    step = 0
    while any(done[r] < len(ids) for r, ids in enumerate(requests)):
        step += 1
        left, pieces = budget, []
        for r in np.roll(range(len(requests)), step):
            take = min(len(requests[r]) - done[r], left, 1 + 7 * (step % 5))
            if take > 0:
                pieces.append((int(r), done[r], take))
                left -= take
        counts = [take for _, _, take in pieces]
        tokens = [token for r, at, take in pieces for token in requests[r][at : at + take]]
        batch = RaggedBatch(
            token_ids=np.array(tokens, np.int32),
            positions=np.concatenate([np.arange(at, at + n) for _, at, n in pieces]).astype(
                np.int32
            ),
            query_start=np.cumsum([0, *counts]).astype(np.int32),
            block_tables=layout.tables(tables[[r for r, _, _ in pieces]]),
            logit_rows=np.arange(sum(counts), dtype=np.int32),
        )
        out = np.asarray(model.forward(batch, kv))
        for (r, _, take), rows in zip(pieces, np.split(out, np.cumsum(counts)[:-1]), strict=True):
            logits[r].append(rows)
            done[r] += take
    return [np.concatenate(rows) for rows in logits]


@pytest.mark.parametrize(("family", "codec", "kv_codec"), RUNS)
def test_every_logit_is_that_of_the_request_alone(
    family: Family, codec: str, kv_codec: KVCodec, kernels: Ops
) -> None:
    check_each_request_alone(family, codec, kv_codec, kernels, BUDGETS)


OF_REFERENCE = [
    run
    for run in RUNS
    if run[0]
    in ("llama", "qwen3", "gemma3_text", "llama4_text", "gpt_oss", "deepseek_v32", "falcon")
]
"""Codecs, windows, chunks, sinks and experts, latents with an index, slopes: the other families are
the same operations, and each meets batches on the kernels."""


@pytest.mark.matrix
@pytest.mark.parametrize(("family", "codec", "kv_codec"), OF_REFERENCE)
def test_the_references_logits_are_those_of_the_request_alone(
    family: Family, codec: str, kv_codec: KVCodec, reference: Ops
) -> None:
    """With one budget of the two, in turn: the reference is slow, and takes any batch alike."""
    chosen = BUDGETS[OF_REFERENCE.index((family, codec, kv_codec)) % 2]
    check_each_request_alone(family, codec, kv_codec, reference, [chosen])


def check_each_request_alone(
    family: Family, codec: str, kv_codec: KVCodec, ops: Ops, budgets: Sequence[int]
) -> None:
    model = load_model(tiny_checkpoint(family, codec), ops)
    rng = np.random.default_rng(7)
    requests = [rng.integers(0, 288, n).tolist() for n in LENGTHS]
    alone = [Session(model, ops, k_codec=kv_codec, v_codec=kv_codec).feed(ids) for ids in requests]
    for budget in budgets:
        together = run_mixed(model, ops, requests, kv_codec, budget)
        for mine, expected in zip(together, alone, strict=True):
            assert np.array_equal(mine, expected)


def test_only_the_rows_asked_for_get_logits(ops: Ops) -> None:
    model = load_model(tiny_checkpoint(), ops)
    ids = list(range(20))
    full = Session(model, ops).feed(ids)
    kv = ops.kv_cache(model.cache_layout.spec(16, 3, "f32", "f32"))
    batch = RaggedBatch(
        token_ids=np.array(ids, np.int32),
        positions=np.arange(20, dtype=np.int32),
        query_start=np.array([0, 20], np.int32),
        block_tables=(np.array([[1, 2]], np.int32),),
        logit_rows=np.array([3, 19], np.int32),
    )
    assert np.array_equal(np.asarray(model.forward(batch, kv)), full[[3, 19]])
