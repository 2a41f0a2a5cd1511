"""Llama 4's text: published configs, cache bytes, chunks across pages, and what stops a load."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.models.families.llama4 import Llama4Config
from headrace.models.layer_cache import LayerKV, cache_layout
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.model_config.text_part import text_config
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.tensors.rope_rows import llama3_factors, llama3_scaling_of
from headrace.weights.tensors.source import TensorSource, source_of_array, source_of_tensor
from headrace.weights.tensors.tensor import Tensor
from tests.engine.kv.test_groups import held_bytes
from tests.models.cases import CASES, Session, prompt
from tests.models.make_goldens import COLUMN_STEP
from tests.models.test_parity import golden
from tests.models.whole_folders import write_whole
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_gguf, write_tiny_hf

FAMILY = "llama4_text"
CHUNKED, FULL = "chunked_attention", "full_attention"
SCOUT, MAVERICK = "Llama-4-Scout-17B-16E", "Llama-4-Maverick-17B-128E"
OUTER = {"model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"],
         "boi_token_index": 280, "eoi_token_index": 281, "image_token_index": 282,
         "vision_config": {"model_type": "llama4_vision_model"}}  # fmt: skip


def read(config: dict[str, Any]) -> DecoderConfig:
    stated = text_config(config)
    return read_config(
        Checkpoint(Path("x"), "safetensors", stated, Conventions(), {}, TokenizerData("none"))
    )


def published(shared_assets: Path, name: str) -> dict[str, Any]:
    path = (
        shared_assets / "model-configs" / "hf-config" / f"meta-llama--{name}-Instruct_config.json"
    )
    stated: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return stated


@pytest.mark.parametrize(
    ("name", "experts", "step", "unit_heads", "positions"),
    [(SCOUT, 16, 1, True, 10485760), (MAVERICK, 128, 2, False, 1048576)],
)
def test_published_configs_are_read(
    shared_assets: Path, name: str, experts: int, step: int, unit_heads: bool, positions: int
) -> None:
    stated = published(shared_assets, name)
    config = read(stated)
    assert isinstance(config, Llama4Config) and config.unit_heads is unit_heads
    assert (config.num_layers, config.hidden_size, config.max_positions) == (48, 5120, positions)
    shape = config.attention
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (40, 8, 128)
    assert config.chunks == (8192, 8192, 8192, 0) * 12
    assert config.rotates == (True, True, True, False) * 12
    scaling = config.query_scaling
    assert scaling is not None and (scaling.length, scaling.offset) == (8192, 1)
    assert scaling.layers == (False, False, False, True) * 12
    mixture = config.experts
    assert mixture is not None and mixture.routing == Routing(experts, 1, "sigmoid", False)
    assert mixture.layers == (False,) * (step - 1) + ((True,) + (False,) * (step - 1)) * (
        48 // step - 1
    ) + (True,)
    assert (config.intermediate_size, mixture.intermediate_size) == (16384, 8192)
    assert mixture.shared_size == 8192 and mixture.weigh_input
    entries = metadata_of_config(text_config(stated), ARCHITECTURES[FAMILY]).entries
    assert entries["llama4.interleave_moe_layer_step"] == step
    assert "llama4.attention.sliding_window" not in entries


@pytest.mark.parametrize("name", [SCOUT, MAVERICK])
def test_chunks_bound_what_a_long_request_holds(shared_assets: Path, name: str) -> None:
    """2 layers h_kv d_h bytes a token, of min(context, chunk) tokens in layers with chunks."""
    layout = cache_layout(read(published(shared_assets, name)).layer_caches)
    token = 2 * 8 * 128 * 2
    formula = token * (12 * 32_768 + 36 * 8192)
    held = held_bytes(layout, 32_768)
    # Beside the chunk: a step of 512 tokens, and two blocks of 32 that are not full.
    assert formula <= held <= formula + 36 * token * (512 + 64)
    assert held < 0.46 * 48 * token * 32_768


def test_layers_keep_chunks() -> None:
    config = read(tiny_config(FAMILY, **CASES["llama4"].shape))
    assert config.layer_caches[:4] == (LayerKV(2, 32, 24, chunked=True),) * 3 + (LayerKV(2, 32),)


def test_what_lies_before_a_chunk_is_not_read(reference: Ops) -> None:
    """Block tables without the entries that a window of a chunk's size no longer needs."""
    name = "llama4"
    case, seed = CASES[name], int(golden(name)["seed"])
    model = load_model(tiny_checkpoint(case.family, seed=seed, **case.shape), reference)
    ids = prompt(seed) + golden(name)["greedy"].tolist()[:-1]
    expected = Session(model, reference).feed(ids)[len(ids) - 5 :]
    session = Session(model, reference)
    session.feed(ids[:-5])
    # Position 128 and its window of 24 lie in blocks 6 and later; chunks begin at 120.
    windowed = next(i for i, group in enumerate(model.cache_layout.groups) if group.window)
    first = sum(group.num_tables for group in model.cache_layout.groups[:windowed])
    for table in range(first, first + model.cache_layout.groups[windowed].num_tables):
        session._tables[table][:, :6] = 0
    assert np.array_equal(session.feed(ids[-5:]), expected)


@pytest.mark.torch
def test_experts_are_chosen_by_logits_where_sigmoids_are_all_1(reference: Ops) -> None:
    torch: Any = pytest.importorskip("torch", reason="compares with the router of transformers")
    llama4: Any = pytest.importorskip(
        "transformers.models.llama4.modeling_llama4", reason="has the router that this is held to"
    )
    count, chosen = 16, 2
    stated = llama4.Llama4TextConfig(
        hidden_size=count, num_local_experts=count, num_experts_per_tok=chosen
    )
    router = llama4.Llama4Router(stated)
    router.weight.data = torch.eye(count)
    logits = np.random.default_rng(4).uniform(40, 90, (50, count)).astype(np.float32)
    with torch.no_grad():
        scores = router(torch.from_numpy(logits))[0].numpy()
    routes = reference.route(logits, Routing(count, chosen, "sigmoid", False))
    ours = np.zeros_like(scores)
    np.put_along_axis(ours, routes.experts, routes.weights, axis=1)
    assert np.array_equal(ours, scores)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attention_chunk_size": None}, "attention_chunk_size = None"),
        ({"attention_chunk_size": 0}, "attention_chunk_size is 0"),
        ({"layer_types": [CHUNKED]}, "layer_types"),
        ({"layer_types": [FULL, "sliding_attention"]}, "layer_types"),
        ({"layer_types": [[FULL], FULL]}, "layer_types"),
        ({"no_rope_layers": [1, 2]}, "no_rope_layers"),
        ({"moe_layers": 1}, "moe_layers = 1"),
        ({"moe_layers": ["0"]}, "moe_layers"),
        ({"interleave_moe_layer_step": 0}, "interleave_moe_layer_step is 0"),
        ({"num_local_experts": 1 << 30}, "num_local_experts = 1073741824"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok = 7"),
        ({"attn_scale": 0.0}, "attn_scale is 0.0"),
        ({"floor_scale": 0}, "floor_scale is 0"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"norm_topk_prob": True}, "norm_topk_prob = True"),
        ({"sliding_window": 128}, "sliding_window = 128"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY), **change})


def test_silence_means_what_transformers_means() -> None:
    sizes = {
        "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8,
        "num_hidden_layers": 5,
    }  # fmt: skip
    config = read({"model_type": FAMILY, **sizes})
    assert isinstance(config, Llama4Config) and config.unit_heads
    assert (config.attention.num_kv_heads, config.attention.head_dim) == (8, 128)
    assert config.chunks == (8192, 8192, 8192, 0, 8192)
    assert (config.intermediate_size, config.max_positions) == (16384, 131072)
    assert config.rope is not None and config.rope.theta == 500000.0
    assert config.experts is not None and config.experts.routing == Routing(16, 1, "sigmoid", False)


def test_weights_that_multiply_the_output_are_not_lost_in_the_tolerance(reference: Ops) -> None:
    expected, case = golden("llama4"), CASES["llama4"]
    seed = int(expected["seed"])
    model = load_model(tiny_checkpoint(case.family, seed=seed, **case.shape), reference)
    for layer in model._layers:
        mlp = layer.mlp  # type: ignore[attr-defined]
        mlp.mlp = replace(mlp.mlp, weigh_input=False)
    ids = prompt(seed) + expected["greedy"].tolist()[:-1]
    logits = Session(model, reference).feed(ids)[:, ::COLUMN_STEP]
    assert np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"])


def test_a_rope_whose_long_and_short_waves_meet() -> None:
    """Scout's: waves of up to 8,192 positions stay, longer ones are divided by 16."""
    scaling = {
        "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    factors = llama3_factors(128, 500000.0, scaling)
    waves = 2 * np.pi * 500000.0 ** (np.arange(64) / 64)
    assert factors.tolist() == np.where(waves > 8192, 16.0, 1.0).tolist()
    assert llama3_scaling_of(factors, 128, 500000.0) == scaling


def test_a_folder_s_stacks_are_turned(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path, FAMILY)
    stored = read_safetensors(folder / "model.safetensors").tensors
    at = "model.layers.1.feed_forward.experts"
    assert stored[f"{at}.gate_up_proj"].shape == (6, 64, 64)
    first = tiny_checkpoint(FAMILY).tensors
    gate_up = stored[f"{at}.gate_up_proj"].to_f32()
    for place, part in enumerate(("gate_proj", "up_proj")):
        expected = first[f"{at}.5.{part}.weight"].to_f32().T
        assert np.array_equal(gate_up[5, :, 32 * place : 32 * (place + 1)], expected)


def test_a_whole_folder_is_its_text_and_names_what_is_left_out(
    tmp_path: Path, reference: Ops
) -> None:
    others = {"vision_model.class_embedding": (8,), "multi_modal_projector.linear_1.weight": (8, 8)}
    whole = open_checkpoint(write_whole(tmp_path, FAMILY, 0, OUTER, others))
    assert whole.left_out == {"multi_modal_projector": 1, "vision_model": 1}
    models = [load_model(item, reference) for item in (whole, tiny_checkpoint(FAMILY))]
    one, other = (Session(model, reference).feed(prompt(0)[:20]) for model in models)
    assert np.array_equal(one, other)


@pytest.mark.parametrize(("window", "chunks"), [(0, ()), (8192, (8192, 8192)), (4096, None)])
def test_what_a_gguf_file_s_window_means(
    window: int, chunks: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """llama.cpp takes 0 for neither chunks nor layers without rope, and 8,192 for any other."""
    file = open_checkpoint(write_tiny_gguf(tmp_path, FAMILY))
    entries = {name: file.metadata.typed(name) for name in file.metadata}  # type: ignore[attr-defined]
    entries["llama4.attention.sliding_window"] = window
    names = ARCHITECTURES[FAMILY]
    tensors: list[TensorSource] = []
    stacks: dict[str, dict[int, Tensor]] = {}
    for name, tensor in file.tensors.items():
        place = names.expert_place(name)
        if place is None:
            tensors.append(source_of_tensor(tensor, names.gguf_name(name), tensor.codec))
        else:
            stacks.setdefault(place[0], {})[place[1]] = tensor
    for name, members in stacks.items():
        stack = np.stack([members[index].to_f32() for index in sorted(members)])
        tensors.append(source_of_array(stack, name))
    path = tmp_path / "other.gguf"
    write_gguf_file(path, entries, tensors)
    if chunks is None:
        with pytest.raises(CheckpointError, match=r"attention\.sliding_window"):
            open_checkpoint(path)
        return
    assert read(dict(open_checkpoint(path).config)).chunks == chunks
