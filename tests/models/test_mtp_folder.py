"""Layers for further tokens from a place of their own: what they compute, and such as are not of
the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace.engine.drafts.heads.few_bits import few_bits_bytes
from headrace.errors import CheckpointError, ConfigError, UnsupportedModelError
from headrace.models import Model, load_model, read_config
from headrace.models.heads import MtpHead, load_mtp, open_mtp_folder
from headrace.models.heads.mtp import mtp_checkpoint
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint
from tests.models.cases import prompt
from tests.models.heads import cache, whole
from tests.tiny import tiny_checkpoint, to_tensor
from tests.tiny_heads import mtp_checkpoint as tiny_mtp
from tests.tiny_heads import write_mtp_folder

EVERY_SECOND = np.arange(144, dtype=np.int64)
"""As d2t: what has to be added to i to have 2 i."""


def without_layers(checkpoint: Checkpoint) -> Checkpoint:
    """The model that the layers are for, which has none."""
    config = {k: v for k, v in checkpoint.config.items() if k != "mtp_num_hidden_layers"}
    own = {k: t for k, t in checkpoint.tensors.items() if not k.startswith("model.mtp.")}
    return replace(checkpoint, config=config, tensors=own)


def output_rows(checkpoint: Checkpoint) -> npt.NDArray[np.float32]:
    """The matrix of the model's logits."""
    tensors = checkpoint.tensors
    return tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"]).to_f32()


def opened(folder: Path, checkpoint: Checkpoint, target: Model, ops: Ops) -> MtpHead:
    found = open_mtp_folder(folder, checkpoint, target.config)
    return load_mtp(found.folder.checkpoint, target, ops, found.config, found.ids)


def logits_of(head: MtpHead, ops: Ops) -> list[npt.NDArray[np.float32]]:
    """At two places behind every token of a text."""
    ids = prompt(5)[:14]
    features = np.random.default_rng(3).standard_normal((13, 64)).astype(np.float32)
    kv, batch = cache(head, ops), whole(head, ids[1:])
    first, carried = head.begin(batch, kv, features, ())
    one = replace(
        batch, token_ids=np.array([5], np.int32), positions=np.array([13], np.int32),
        query_start=np.array([0, 1], np.int32), logit_rows=np.array([0], np.int32),
    )  # fmt: skip
    second, _ = head.go_on(one, kv, carried, 1)
    return [np.asarray(first), np.asarray(second)]


@pytest.mark.parametrize("with_config", [False, True])
def test_layers_apart_are_those_of_a_checkpoint_with_them(
    with_config: bool, tmp_path: Path, reference: Ops
) -> None:
    both = tiny_mtp("qwen3", count=2)
    alone = without_layers(both)
    folder = write_mtp_folder(tmp_path, both, config=both.config if with_config else None)
    inside = load_mtp(
        mtp_checkpoint(both, read_config(both)), load_model(both, reference), reference
    )
    apart = opened(folder, alone, load_model(alone, reference), reference)
    assert apart.num_kept == inside.num_kept == 1
    features = np.random.default_rng(3).standard_normal((13, 64)).astype(np.float32)
    batch = whole(apart, prompt(5)[1:14])
    for head in (inside, apart):
        logits, _ = head.begin(batch, cache(head, reference), features, [features[:1]])
        if head is inside:
            expected = logits
    np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize(
    ("codec", "tied"), [("F32", True), ("F32", False), ("Q8_0", True), ("Q8_0", False)]
)
def test_a_small_vocabulary_has_the_model_s_own_rows(
    codec: str, tied: bool, tmp_path: Path, reference: Ops
) -> None:
    both = tiny_mtp("qwen3", codec, tie_word_embeddings=tied)
    alone = without_layers(both)
    target = load_model(alone, reference)
    all_of_it = opened(write_mtp_folder(tmp_path / "all", both), alone, target, reference)
    some = write_mtp_folder(tmp_path / "some", both, offsets=EVERY_SECOND)
    narrow = opened(some, alone, target, reference)
    ids = 2 * np.arange(144)
    for whole_one, part in zip(
        logits_of(all_of_it, reference), logits_of(narrow, reference), strict=True
    ):
        assert (np.delete(part, ids, axis=1) == -np.inf).all()
        np.testing.assert_allclose(part[:, ids], whole_one[:, ids], atol=1e-5)


def test_rows_of_a_head_in_the_folder_come_before_the_model_s(
    tmp_path: Path, reference: Ops
) -> None:
    both = tiny_mtp("qwen3")
    alone = without_layers(both)
    rows = np.random.default_rng(7).standard_normal((144, 64)).astype(np.float32)
    weights: dict[str, Any] = {"lm_head.weight": rows}
    folder = write_mtp_folder(tmp_path, both, offsets=EVERY_SECOND, **weights)
    found = open_mtp_folder(folder, alone, read_config(alone))
    np.testing.assert_array_equal(found.folder.tensors["lm_head.weight"].to_f32(), rows)


@pytest.mark.parametrize("stated", [{}, {"draft_vocab_size": 288}])
def test_a_head_in_the_folder_for_all_ids_is_the_draft_s(
    stated: dict[str, int], tmp_path: Path, reference: Ops
) -> None:
    both = tiny_mtp("qwen3")
    alone = without_layers(both)
    target, table = load_model(alone, reference), output_rows(alone)
    expected = logits_of(
        opened(write_mtp_folder(tmp_path / "all", both), alone, target, reference), reference
    )
    config = {**both.config, **stated}
    weights: dict[str, Any] = {"lm_head.weight": 2 * table}
    folder = write_mtp_folder(tmp_path / "own", both, config=config, **weights)
    for own, models in zip(
        logits_of(opened(folder, alone, target, reference), reference), expected, strict=True
    ):
        np.testing.assert_allclose(own, 2 * models, atol=1e-4)
    few: dict[str, Any] = {"lm_head.weight": table[:9]}
    with pytest.raises(CheckpointError, match=r"tensor d2t|lm_head\.weight has shape"):
        folder = write_mtp_folder(tmp_path / "few", both, config=config, **few)
        opened(folder, alone, target, reference)


@pytest.mark.parametrize("kind", ["stated", "d2t", "copy"])
def test_a_vocabulary_of_all_ids_copies_nothing(kind: str, tmp_path: Path) -> None:
    both = tiny_mtp("qwen3", tie_word_embeddings=False)
    alone = without_layers(both)
    stated = {**both.config, "draft_vocab_size": 288}
    zeros = np.zeros(288, np.int64) if kind == "d2t" else None
    weights: dict[str, Any] = {"lm_head.weight": output_rows(alone)} if kind == "copy" else {}
    folder = write_mtp_folder(tmp_path, both, config=stated, offsets=zeros, **weights)
    found = open_mtp_folder(folder, alone, read_config(alone))
    assert found.ids is None and "lm_head.weight" not in found.folder.tensors


def test_rows_of_the_model_s_head_count_as_so_many(tmp_path: Path, reference: Ops) -> None:
    """In few bits already, so that they stay views of the whole table."""
    both = tiny_mtp("qwen3", "Q4_0", tie_word_embeddings=False)
    alone = without_layers(both)
    folder = write_mtp_folder(tmp_path, both, offsets=np.arange(9))
    found = open_mtp_folder(folder, alone, read_config(alone))
    rows = found.folder.tensors["lm_head.weight"]
    assert rows.codec.name == "Q4_0" and rows.nbytes == 9 * (64 // 32 * 18)
    layers = sum(t.nbytes for k, t in found.folder.tensors.items() if k != "lm_head.weight")
    assert few_bits_bytes(replace(found.folder, tensors={"lm_head.weight": rows})) == rows.nbytes
    head = load_mtp(
        found.folder.checkpoint, load_model(alone, reference), reference, found.config, found.ids
    )
    assert head.weight_bytes == layers + rows.nbytes


def test_a_layer_may_be_narrower_than_the_model_s(tmp_path: Path, reference: Ops) -> None:
    both = tiny_mtp("qwen3")
    alone = without_layers(both)
    change: dict[str, Any] = {
        f"mtp.layers.0.mlp.{name}_proj.weight": np.full(shape, 0.01, np.float32)
        for name, shape in (("gate", (32, 64)), ("up", (32, 64)), ("down", (64, 32)))
    }
    target = load_model(alone, reference)
    narrow = {**both.config, "intermediate_size": 32, "draft_vocab_size": 144}
    folder = write_mtp_folder(tmp_path / "a", both, config=narrow, offsets=EVERY_SECOND, **change)
    head = opened(folder, alone, target, reference)
    assert head.config.intermediate_size == 32
    assert np.isfinite(logits_of(head, reference)[0][:, ::2]).all()
    unsaid = write_mtp_folder(tmp_path / "b", both, **change)
    with pytest.raises(CheckpointError, match=r"gate_proj\.weight has shape"):
        opened(unsaid, alone, target, reference)


@pytest.mark.parametrize(
    ("config", "offsets", "change", "words"),
    [
        ({}, None, {"mtp.fc.weight": None}, "fc.weight is missing"),
        ({}, None, {"mtp.fc.weight": np.ones((64, 96), np.float32)}, "fc.weight has shape"),
        ({}, None, {"mtp.layers.0.mystery.weight": np.ones((4, 4), np.float32)}, "mystery"),
        ({}, None, {"mtp.norm.weight": np.ones((1, 64), np.int64)}, "norm.weight' is I64"),
        ({}, np.full(9, 1 << 40), {}, "d2t names token 10995"),
        ({}, np.array([0, -1]), {}, "d2t names a token twice"),
        ({"draft_vocab_size": 9}, np.arange(8), {}, r"d2t has shape \[8\], draft_vocab_size is 9"),
        ({"draft_vocab_size": 9}, None, {}, "9 tokens and the model's 288, and tensor d2t"),
        ({"hidden_size": 128}, None, {}, "hidden_size is 128, and the model's is 64"),
        ({"vocab_size": 999}, None, {},
         r"config\.json: vocab_size is 999, and the model's is 288, 260 without padding"),
        ({"num_hidden_layers": 5}, None, {}, "num_hidden_layers is 5, and the model's is 2"),
        ({"model_type": "mimo"}, None, {}, "model_type 'mimo', and the model is 'qwen3'"),
        ({"hidden_act": "gelu"}, None, {}, "hidden_act"),
        ({"strange_key": 1}, None, {}, "strange_key"),
    ],
)  # fmt: skip
def test_layers_that_are_not_of_the_model_are_refused_by_name(
    config: dict[str, Any],
    offsets: npt.NDArray[np.int64] | None,
    change: dict[str, Any],
    words: str,
    tmp_path: Path,
    reference: Ops,
) -> None:
    both = tiny_mtp("qwen3")
    alone = without_layers(both)
    stated = {**both.config, **config}
    folder = write_mtp_folder(tmp_path, both, config=stated, offsets=offsets, **change)
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        opened(folder, alone, load_model(alone, reference), reference)


def test_folders_without_such_layers_are_refused(tmp_path: Path) -> None:
    both = tiny_mtp("qwen3")
    config = read_config(both)
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "mtp.pt").write_bytes(b"\x80\x04.")
    with pytest.raises(CheckpointError, match=r"mtp.pt is a pickle and is not read; convert it"):
        open_mtp_folder(tmp_path / "pickle", both, config)
    other = write_mtp_folder(
        tmp_path / "other", tiny_checkpoint("qwen3"), **{"other.weight": np.ones(4, np.float32)}
    )
    with pytest.raises(ConfigError, match=r"has no tensors of model.mtp.layers.0.\*"):
        open_mtp_folder(other, both, config)
    llama = tiny_checkpoint("llama")
    with pytest.raises(ConfigError, match="layers of llama for further tokens are not run"):
        open_mtp_folder(other, llama, read_config(llama))


def test_weights_in_eight_bits_are_what_their_scales_make_of_them(tmp_path: Path) -> None:
    both = tiny_mtp("qwen3")
    weight = both.tensors["model.mtp.fc.weight"].to_f32()
    scale = np.abs(weight).max(axis=1, keepdims=True) / 127
    numbers = np.round(weight / scale).astype(np.int8)
    stated = {
        **both.config,
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "int-quantized",
            "config_groups": {"group_0": {
                "targets": ["Linear"], "input_activations": None,
                "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
            }},
        },
    }  # fmt: skip
    folder = write_mtp_folder(
        tmp_path, both, config=stated, **{"mtp.fc.weight": numbers, "mtp.fc.weight_scale": scale}
    )
    found = open_mtp_folder(folder, without_layers(both), read_config(both)).folder
    fc = found.tensors["model.layers.0.fc.weight"]
    np.testing.assert_array_equal(fc.to_f32(), numbers.astype(np.float32) * scale)
    assert to_tensor("x", scale, "F32").codec.name == "F32" != fc.codec.name
