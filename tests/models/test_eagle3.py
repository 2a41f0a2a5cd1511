"""EAGLE-3 heads against a slow twin, and folders that are not of the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.models.heads import load_eagle3
from headrace.models.model import NORMED
from headrace.ops.interface import Ops
from headrace.weights.hugging_face.head_folder import head_kind, open_head_folder
from tests.models.cases import prompt
from tests.models.heads import Floats, Values, cache, rms, rotated, run, whole
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_heads import eagle3_config, eagle3_weights, write_eagle3

TARGET = tiny_config("llama")


def slow_eagle3(
    config: dict[str, Any], weights: dict[str, Values], tokens: Floats, features: Floats
) -> tuple[Floats, Floats]:
    """Logits of the head's own vocabulary and the states behind, of embeddings f64[N, hidden]."""

    def matrix(name: str) -> Values:
        return weights[f"{name}.weight"]

    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    states = features @ matrix("fc").T
    normed = rms(states, matrix("midlayer.hidden_norm"))
    joined = np.concatenate([rms(tokens, matrix("midlayer.input_layernorm")), normed], -1)
    q, k, v = (
        (joined @ matrix(f"midlayer.self_attn.{letter}_proj").T).reshape(len(tokens), count, -1)
        for letter, count in zip("qkv", (heads, kv_heads, kv_heads), strict=True)
    )
    q, k = rotated(q), np.repeat(rotated(k), heads // kv_heads, 1)
    v = np.repeat(v, heads // kv_heads, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    attended = np.einsum("hij,jhd->ihd", chances, v).reshape(len(tokens), -1)
    kept = normed if config.get("norm_before_residual") else states
    x = kept + attended @ matrix("midlayer.self_attn.o_proj").T
    inner = rms(x, matrix("midlayer.post_attention_layernorm"))
    gate = inner @ matrix("midlayer.mlp.gate_proj").T
    up = inner @ matrix("midlayer.mlp.up_proj").T
    y = x + (gate / (1 + np.exp(-gate)) * up) @ matrix("midlayer.mlp.down_proj").T
    return rms(y, matrix("norm")) @ matrix("lm_head").T, y


@pytest.mark.parametrize("change", [{}, {"norm_before_residual": True}, {"head_dim": 32}])
def test_an_eagle3_head_is_what_its_slow_twin_says(
    change: dict[str, Any], reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    config = eagle3_config(TARGET, **change)
    head = load_eagle3(open_head_folder(write_eagle3(tmp_path, config)), target, reference)
    ids = prompt(3)[:20]
    features = target.forward_with_features(
        whole(target, ids), cache(target, reference), head.feature_layers
    )[1]
    assert features is not None and head.feature_width == features.shape[1] == 3 * 64
    logits, states = run(head, reference, ids[1:], features[:-1])
    tokens = target.embed_tokens(np.array(ids[1:], np.int32)).astype(np.float64)
    weights = eagle3_weights(config, TARGET["vocab_size"])
    expected, following = slow_eagle3(config, weights, tokens, features[:-1].astype(np.float64))
    assert logits.shape == (19, TARGET["vocab_size"])
    np.testing.assert_allclose(logits[:, ::2], expected, atol=2e-5)
    np.testing.assert_allclose(*states, following[-1:], atol=2e-5)
    assert (logits[:, 1::2] == -np.inf).all()


def test_features_are_those_of_each_layer(reference: Ops) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    ids = prompt(1)[:9]
    batch, kv = whole(target, ids), cache(target, reference)
    logits, features = target.forward_with_features(batch, kv, (0, 1, 2, NORMED))
    assert features is not None
    first, one, two, normed = np.split(features, 4, axis=1)
    assert np.array_equal(first, target.embed_tokens(batch.token_ids))
    assert not np.array_equal(one, two)
    np.testing.assert_allclose(normed @ head_of(TARGET).T, logits, atol=1e-4)
    assert np.array_equal(logits, target.forward(batch, cache(target, reference)))


def head_of(config: dict[str, Any]) -> Values:
    checkpoint = tiny_checkpoint("llama")
    name = (
        "lm_head.weight" if "lm_head.weight" in checkpoint.tensors else "model.embed_tokens.weight"
    )
    assert config == checkpoint.config
    return checkpoint.tensors[name].to_f32()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_hidden_size": 96}, "features of 96 values, and the model's have 64"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, "what the first 9 layers give"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "3 numbers of layers"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state: true"),
        ({"num_hidden_layers": 2}, "num_hidden_layers = 2"),
        ({"hidden_size": 96}, "embed_tokens.weight is missing"),
        ({"mystery": 3}, "mystery = 3"),
        ({"use_sliding_window": True, "sliding_window": 8}, "sliding_window = 8"),
        ({"draft_vocab_size": 100}, "d2t has shape|lm_head"),
        ({"head_dim": 2**40}, "head_dim"),
        ({"head_dim": 2**27}, "head_dim = 134217728"),
    ],
)
def test_a_head_of_another_model_is_refused_by_name(
    change: dict[str, Any], words: str, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    written = eagle3_config(TARGET)
    folder = write_eagle3(tmp_path, written)
    opened = replace(open_head_folder(folder), config={**written, **change})
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        load_eagle3(opened, target, reference)


@pytest.mark.parametrize(
    ("offset", "words"), [(1 << 40, "names token"), (-5, "names token -5"), (2, "twice")]
)
def test_ids_that_the_target_does_not_have_are_refused(
    offset: int, words: str, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    config = eagle3_config(TARGET)
    offsets = np.arange(config["draft_vocab_size"])
    offsets[0] = offset
    folder = write_eagle3(tmp_path, config, offsets=offsets)
    with pytest.raises(CheckpointError, match=words):
        load_eagle3(open_head_folder(folder), target, reference)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("fc.weight", np.zeros((64, 192), np.int64), r"model.fc.weight' is I64"),
        ("norm.weight", np.zeros(64, np.int64), r"model.norm.weight' is I64"),
        ("embed_tokens.weight", np.zeros((10, 64), np.float32), r"embed_tokens.weight has shape"),
    ],
)
def test_weights_that_cannot_be_are_refused_by_name(
    name: str, values: Any, words: str, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    folder = write_eagle3(tmp_path, eagle3_config(TARGET), **{name: values})
    with pytest.raises(CheckpointError, match=words):
        load_eagle3(open_head_folder(folder), target, reference)


def test_folders_of_speculators_are_read_alike(reference: Ops, tmp_path: Path) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    config = eagle3_config(TARGET)
    eagle = open_head_folder(write_eagle3(tmp_path, config))
    own = {"draft_vocab_size", "architectures", "model_type"}
    layer = {key: value for key, value in config.items() if key not in own}
    stated = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.1.0",
        "speculators_config": {"algorithm": "eagle3"},
        "draft_vocab_size": config["draft_vocab_size"],
        "transformer_layer_config": {**layer, "model_type": "llama"},
    }
    other = replace(eagle, config=stated)
    ids, features = prompt(2)[:8], np.random.default_rng(0).standard_normal((8, 192))
    logits = [
        run(load_eagle3(each, target, reference), reference, ids, features.astype(np.float32))[0]
        for each in (eagle, other)
    ]
    assert np.array_equal(*logits)
    assert head_kind(tmp_path) == "eagle3"


def test_a_pickle_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert head_kind(tmp_path) is None
    with pytest.raises(CheckpointError, match="is a pickle and is not read; convert it"):
        open_head_folder(tmp_path)
