"""DFlash heads against a slow twin, and folders that are not of the model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import Model, load_model
from headrace.models.heads import DflashHead, load_dflash
from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch
from headrace.weights.hugging_face.head_folder import head_kind, open_head_folder
from tests.models.cases import prompt
from tests.models.heads import cache, rms, whole
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_heads import dflash_config, dflash_weights, drawn, write_dflash

Floats = npt.NDArray[np.float64]
Values = npt.NDArray[np.float32]
TARGET = tiny_config("llama")
WINDOWED = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 6,
    "use_sliding_window": True,
}


def turned(x: Floats, positions: npt.NDArray[np.int64]) -> Floats:
    """Heads f64[N, heads, dim] turned by these positions."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def slow_dflash(
    config: dict[str, Any], weights: dict[str, Values], features: Values, block: Floats
) -> Floats:
    """Behind the final norm, what each token of a block gives after features f64[N, …] of tokens 0
    to N - 1: f64[B, hidden]. block: embeddings f64[B, hidden]."""

    def by(x: Floats, name: str) -> Floats:
        return x @ weights[f"{name}.weight"].T

    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim, causal = config["head_dim"], config.get("is_causal")
    context = rms(by(features.astype(np.float64), "fc"), weights["hidden_norm.weight"], 1e-6)
    count, size = len(context), len(block)
    places = np.arange(count + size)
    kinds = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
    x = block
    for layer, kind in enumerate(kinds):
        at, attn = f"layers.{layer}", f"layers.{layer}.self_attn"
        inner = rms(x, weights[f"{at}.input_layernorm.weight"], 1e-6)
        both = np.concatenate([context, inner])
        q = by(inner, f"{attn}.q_proj").reshape(size, heads, dim)
        k = by(both, f"{attn}.k_proj").reshape(-1, kv_heads, dim)
        v = by(both, f"{attn}.v_proj").reshape(-1, kv_heads, dim)
        q = turned(rms(q, weights[f"{attn}.q_norm.weight"], 1e-6), places[count:])
        k = turned(rms(k, weights[f"{attn}.k_norm.weight"], 1e-6), places)
        k, v = (np.repeat(each, heads // kv_heads, 1) for each in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim)
        ahead = places[None] - places[count:, None]
        if kind == "sliding_attention":
            scores[:, (ahead > 0) | (ahead <= -config["sliding_window"])] = -np.inf
        elif causal:
            scores[:, ahead > 0] = -np.inf
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        attended = np.einsum("hij,jhd->ihd", chances, v).reshape(size, -1)
        h = x + by(attended, f"{attn}.o_proj")
        inner = rms(h, weights[f"{at}.post_attention_layernorm.weight"], 1e-6)
        gate = by(inner, f"{at}.mlp.gate_proj")
        act = gate / (1 + np.exp(-gate)) * by(inner, f"{at}.mlp.up_proj")
        x = h + by(act, f"{at}.mlp.down_proj")
    return rms(x, weights["norm.weight"], 1e-6)


def opened(
    ops: Ops, folder: Path, config: dict[str, Any], **change: Any
) -> tuple[Model, DflashHead]:
    target = load_model(tiny_checkpoint("llama"), ops)
    write_dflash(folder, config, **change)
    return target, load_dflash(open_head_folder(folder), target, ops)


def head_matrix() -> Values:
    checkpoint = tiny_checkpoint("llama")
    tensors = checkpoint.tensors
    return tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"]).to_f32()


def block_of(target: Model, token_id: int, size: int) -> Floats:
    ids = np.full(size, 270, np.int32)
    ids[0] = token_id
    return np.asarray(target.embed_tokens(ids), np.float64)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"is_causal": True},
        WINDOWED,
        {"num_hidden_layers": 1, "block_size": 17},
        {"dflash_config": {"mask_token_id": 270, "target_layer_ids": [1], "block_size": 3,
                           "output_multiplier": 0.5, "final_logit_softcapping": 2.0},
         "block_size": 3},
    ],
)  # fmt: skip
def test_a_dflash_head_is_what_its_slow_twin_says(
    change: dict[str, Any], reference: Ops, tmp_path: Path
) -> None:
    config = dflash_config(TARGET, **change)
    target, head = opened(reference, tmp_path, config)
    ids, size = prompt(3)[:20], config["block_size"]
    features = target.forward_with_features(
        whole(target, ids), cache(target, reference), head.feature_layers
    )[1]
    assert features is not None and head.feature_width == features.shape[1]
    assert head.block_drafts == size - 1
    weights, kv = dflash_weights(config), cache(head, reference)
    # Read in two parts, the second one over what the first one's block has left.
    for start, stop in ((0, 11), (11, 19)):
        batch = replace(
            whole(head, ids[1 : stop + 1]),
            token_ids=np.array(ids[start + 1 : stop + 1], np.int32),
            positions=np.arange(start, stop, dtype=np.int32),
            query_start=np.array([0, stop - start], np.int32),
            logit_rows=np.array([stop - start - 1], np.int32),
        )
        logits, carried = head.begin(batch, kv, features[start:stop], (), size - 1)
        y = slow_dflash(config, weights, features[:stop], block_of(target, ids[stop], size))
        expected = y[1:] @ head_matrix().T
        if "dflash_config" in change:
            expected = 2.0 * np.tanh(0.5 * expected / 2.0)
        assert len(carried) == size - 2
        for place in range(size - 1):
            np.testing.assert_allclose(logits, expected[place : place + 1], atol=1e-4)
            if carried:
                logits, carried = head.go_on(batch, kv, carried, place + 1)


def test_blocks_of_requests_together_are_those_of_each(reference: Ops, tmp_path: Path) -> None:
    """One of which is read only in part and has no block, the others of unequal lengths."""
    config = dflash_config(TARGET, **WINDOWED)
    _, head = opened(reference, tmp_path, config)
    lengths = (7, 3, 1)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 256, sum(lengths)).astype(np.int32)
    features = rng.standard_normal((sum(lengths), head.feature_width)).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tables = head.cache_layout.tables(np.array([[1], [2], [3]], np.int32))
    batch = RaggedBatch(
        ids, np.concatenate([np.arange(n) for n in lengths]).astype(np.int32), starts, tables,
        starts[[1, 3]] - np.int32(1),
    )  # fmt: skip
    logits, carried = head.begin(batch, cache(head, reference), features, (), 3)
    assert len(logits) == 2 and all(len(each) == 3 for each in carried) and len(carried) == 2
    for at, request in enumerate((0, 2)):
        own = slice(starts[request], starts[request + 1])
        count = lengths[request]
        alone = RaggedBatch(
            ids[own], np.arange(count, dtype=np.int32), np.array([0, count], np.int32),
            tuple(table[request : request + 1] for table in tables),
            np.array([count - 1], np.int32),
        )  # fmt: skip
        first, later = head.begin(alone, cache(head, reference), features[own], (), 3)
        np.testing.assert_allclose(logits[at : at + 1], first, atol=1e-5)
        for together, each in zip(carried, later, strict=True):
            np.testing.assert_allclose(together[request : request + 1], each, atol=1e-5)
    nobody = replace(batch, logit_rows=np.zeros(0, np.int32))
    logits, carried = head.begin(nobody, cache(head, reference), features, (), 3)
    assert len(logits) == 0 and carried == ()


def test_folders_of_speculators_are_read_alike(reference: Ops, tmp_path: Path) -> None:
    """With the numbers of layers that they have, and a head of a smaller vocabulary."""
    config = dflash_config(TARGET, dflash_config={"mask_token_id": 270, "target_layer_ids": [0, 0]})
    _, zlab = opened(reference, tmp_path / "zlab", config)
    beside = {"architectures", "auto_map", "block_size", "dflash_config", "num_target_layers"}
    stated = {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": "dflash",
        "speculators_version": "0.5.0",
        "speculators_config": {"algorithm": "dflash"},
        "block_size": 5,
        "mask_token_id": 270,
        "aux_hidden_state_layer_ids": [1, 1],
        "draft_vocab_size": 144,
        "sample_from_anchor": False,
        "sliding_window_non_causal": False,
        "transformer_layer_config": {
            key: value for key, value in config.items() if key not in beside
        },
    }
    own = drawn("lm_head.weight", (144, 64))
    folder = tmp_path / "speculators"
    verifier = {"verifier_lm_head.weight": np.zeros((9, 64), np.float32)}
    offsets = {"d2t": np.arange(144)}
    _, other = opened(reference, folder, stated, **{"lm_head.weight": own, **verifier, **offsets})
    assert head_kind(folder) == head_kind(tmp_path / "zlab") == "dflash"
    assert zlab.feature_layers == other.feature_layers == (1, 1)
    ids = prompt(2)[:8]
    features = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float32)
    batch = replace(whole(zlab, ids), logit_rows=np.array([7], np.int32))
    found = [head.begin(batch, cache(head, reference), features, ())[0] for head in (zlab, other)]
    y = np.linalg.lstsq(head_matrix().astype(np.float64), found[0][0], rcond=None)[0]
    np.testing.assert_allclose(found[1][0, ::2], own @ y, atol=1e-3)
    assert (found[1][0, 1::2] == -np.inf).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_target_layers": 36}, "num_target_layers = 36"),
        ({"target_hidden_size": 96}, "features of 96 values, and the model's have 64"),
        ({"hidden_size": 96}, "embed_tokens.weight is missing, and the model's is 64 wide"),
        ({"dflash_config": {"target_layer_ids": [0]}}, "mask_token_id = -1"),
        ({"dflash_config": {"mask_token_id": 288, "target_layer_ids": [0]}}, "mask_token_id = 288"),
        ({"dflash_config": {"mask_token_id": 1}}, "target_layer_ids|aux_hidden_state_layer_ids"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [2]}}, "target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [-1]}}, "target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [True]}}, "target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": []}}, "target_layer_ids"),
        ({"dflash_config": [1]}, "dflash_config has to be an object"),
        ({"block_size": 1}, "block_size = 1"),
        ({"block_size": 65}, "block_size"),
        ({"block_size": 2**40}, "block_size"),
        ({"projector_type": "domino"}, "projector_type = 'domino'"),
        ({"sample_from_anchor": True}, "sample_from_anchor = True"),
        ({"selector_rank": 256}, "selector_rank = 256"),
        ({"conv_kernel_size": 2}, "conv_kernel_size = 2"),
        ({**WINDOWED, "is_causal": False}, "is_causal = False"),
        ({**WINDOWED, "sliding_window_non_causal": True}, "sliding_window_non_causal = True"),
        ({**WINDOWED, "speculators_model_type": "dflash"}, "sliding_window_non_causal = None"),
        ({**WINDOWED, "sliding_window": None}, "layer_types"),
        ({"use_swa": True}, "use_swa = True"),
        ({"model_type": "llama"}, "model_type = 'llama'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"head_dim": 2**40}, "head_dim"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3"),
        ({"final_logit_softcapping": -1.0}, "final_logit_softcapping"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"mystery": 3}, "mystery = 3"),
        ({"num_hidden_layers": 3}, "layers.2.input_layernorm.weight is missing"),
        ({"num_hidden_layers": 1}, "not part of this family"),
        ({"draft_vocab_size": 100}, ""),
    ],
)
def test_a_head_of_another_model_or_kind_is_refused_by_name(
    change: dict[str, Any], words: str, reference: Ops, tmp_path: Path
) -> None:
    target = load_model(tiny_checkpoint("llama"), reference)
    config = dflash_config(TARGET)
    folder = open_head_folder(write_dflash(tmp_path, config))
    stated = replace(folder, config={**config, **change})
    if not words:  # of a head that it does not have
        assert load_dflash(stated, target, reference).block_drafts == 4
        return
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        load_dflash(stated, target, reference)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fc.weight": np.zeros((64, 192), np.float32)}, "model.fc.weight has shape"),
        ({"fc.weight": np.zeros((64, 128), np.int64)}, "model.fc.weight' is I64"),
        ({"hidden_norm.weight": None}, "model.hidden_norm.weight is missing"),
        ({"layers.1.self_attn.k_norm.weight": None}, "k_norm.weight is missing"),
        ({"mask_embedding": np.zeros(64, np.float32)}, "mask_embedding"),
        ({"lm_head.weight": np.zeros((100, 64), np.float32)}, "lm_head.weight has shape"),
        ({"d2t": np.zeros(288, np.int64)}, "lm_head.weight is missing, and tensor d2t"),
        ({"lm_head.weight": np.zeros((288, 64), np.float32), "d2t": np.full(288, 1 << 40)},
         "names token"),
        ({"embed_tokens.weight": np.zeros((10, 64), np.float32)}, "embed_tokens.weight has shape"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_are_refused_by_name(
    change: dict[str, Any], words: str, reference: Ops, tmp_path: Path
) -> None:
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        opened(reference, tmp_path, dflash_config(TARGET), **change)


def test_published_words_are_read(reference: Ops, tmp_path: Path) -> None:
    """Those of Qwen3.5's heads: the block in the section, the rope in one."""
    config = dflash_config(TARGET)
    section = {"mask_token_id": 270, "target_layer_ids": [0, 1], "block_size": 16}
    config |= {"dflash_config": section, "rope_parameters": {"rope_type": "default",
               "rope_theta": 10000.0}, "is_causal": None, "dtype": "bfloat16",
               "layer_types": ["full_attention"] * 2, "max_window_layers": 2}  # fmt: skip
    for key in ("block_size", "rope_theta", "rope_scaling"):
        del config[key]
    _, head = opened(reference, tmp_path, json.loads(json.dumps(config)))
    assert head.block_drafts == 15 and head.feature_layers == (1, -1)
