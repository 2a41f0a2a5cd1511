"""Medusa heads against a slow twin, and folders that are not of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.models.heads import load_medusa
from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch
from headrace.weights.hugging_face.head_folder import head_kind, open_head_folder
from tests.models.heads import cache
from tests.models.test_dflash import head_matrix
from tests.tiny import tiny_checkpoint
from tests.tiny_heads import medusa_weights, write_medusa

Values = npt.NDArray[np.float32]
STATED = {"medusa_num_heads": 3, "medusa_num_layers": 2, "base_model_name_or_path": "x"}


def three(head: Any) -> RaggedBatch:
    """Of three requests of 2, 1 and 3 tokens, of which the second one does not draw."""
    tables = head.cache_layout.tables(np.array([[1], [2], [3]], np.int32))
    return RaggedBatch(
        np.arange(6, dtype=np.int32), np.array([0, 1, 0, 0, 1, 2], np.int32),
        np.array([0, 2, 3, 6], np.int32), tables, np.array([1, 5], np.int32),
    )  # fmt: skip


def slow(weights: dict[str, Values], head: int, blocks: int, x: Values) -> Any:
    x = x.astype(np.float64)
    for block in range(blocks):
        name = f"{head}.{block}.linear"
        inner = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        x = x + inner / (1 + np.exp(-inner))
    return x @ weights.get(f"{head}.{blocks}.weight", head_matrix()).T


@pytest.mark.parametrize("own_heads", [True, False])
def test_medusa_heads_are_what_their_slow_twin_says(
    own_heads: bool, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    weights = medusa_weights(64, 288, 3, 2, own_heads=own_heads)
    folder = write_medusa(tmp_path, STATED, weights)
    assert head_kind(folder) == "medusa"
    heads = load_medusa(open_head_folder(folder), target, reference)
    assert heads.block_drafts == 3
    features = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    kv = cache(heads, reference)
    logits, carried = heads.begin(three(heads), kv, features, (), 3)
    ends = features[[1, 2, 5]]
    np.testing.assert_allclose(logits, slow(weights, 0, 2, ends)[[0, 2]], atol=1e-4)
    for place in (1, 2):
        logits, carried = heads.go_on(three(heads), kv, carried, place)
        np.testing.assert_allclose(logits, slow(weights, place, 2, ends), atol=1e-4)
    assert len(heads.begin(three(heads), kv, features, (), 2)[1]) == 1


def test_folders_in_vllms_words_are_read_alike(reference: Ops, tmp_path: Path) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    weights = medusa_weights(64, 288, 2, 1)
    stated = {"medusa_num_heads": 2, "medusa_num_layers": 1}
    mine = write_medusa(tmp_path / "authors", stated, weights)
    renamed = {
        f"medusa_heads.blocks.{head}.layers.0.{kind}": weights[f"{head}.0.linear.{kind}"]
        for head in range(2)
        for kind in ("weight", "bias")
    } | {f"lm_heads.{head}.weight": weights[f"{head}.1.weight"] for head in range(2)}
    config = {
        "architectures": ["MedusaModel"], "model_type": "medusa", "num_heads": 2,
        "num_hidden_layers": 1, "hidden_size": 64, "vocab_size": 288, "truncated_vocab_size": 288,
        "max_paths": 64, "topk": 10,
    }  # fmt: skip
    other = write_medusa(tmp_path / "vllm", config, renamed)
    features = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    found = []
    for folder in (mine, other):
        heads = load_medusa(open_head_folder(folder), target, reference)
        found.append(heads.begin(three(heads), cache(heads, reference), features, ())[0])
    assert np.array_equal(*found)


@pytest.mark.parametrize(
    ("change", "gone", "words"),
    [
        ({"hidden_size": 96}, "", "hidden_size is 96, and the model's is 64"),
        ({"vocab_size": 100}, "", "vocab_size is 100, and the model's is 288"),
        ({"truncated_vocab_size": 100}, "", "truncated_vocab_size = 100"),
        ({"original_lm_head": True}, "", "original_lm_head = True"),
        ({"medusa_num_heads": 10**9}, "", "medusa_num_heads"),
        ({"medusa_num_layers": 17}, "", "medusa_num_layers"),
        ({"medusa_num_heads": 4}, "", "blocks.3.layers.0.weight is missing"),
        ({"medusa_num_heads": 2}, "", "not part of this family"),
        ({"medusa_num_layers": 1}, "", "not part of this family|lm_heads"),
        ({"mystery": 1}, "", "mystery = 1"),
        ({}, "1.0.linear.weight", "blocks.1.layers.0.weight is missing"),
        ({}, "2.2.weight", "lm_heads.2.weight is missing"),
    ],
)
def test_heads_of_another_model_are_refused_by_name(
    change: dict[str, Any], gone: str, words: str, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    weights = medusa_weights(64, 288, 3, 2)
    weights.pop(gone, None)
    folder = write_medusa(tmp_path, {**STATED, **change}, weights)
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        load_medusa(open_head_folder(folder), target, reference)


def test_a_pickle_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 2}', encoding="utf-8")
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"x")
    assert head_kind(tmp_path) == "medusa"
    with pytest.raises(CheckpointError, match=r"medusa_lm_head\.pt is a pickle and is not read"):
        open_head_folder(tmp_path)
