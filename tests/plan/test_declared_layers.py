"""What `plan` says the KV cache of a family takes is what the engine's layers keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog import Catalog
from headrace.engine.kv.kv_sizes import most_blocks_of
from headrace.models import DecoderConfig, read_config
from headrace.models.layer_cache import LayerKV, cache_layout
from headrace.ops.kv import AttentionShape
from headrace.plan.memory.kv_cache import KvCache, kv_kind
from headrace.plan.model.declared_layers import declared_layers
from headrace.plan.model.model_shape import shape_of_catalog, shape_of_config
from headrace.plan.simulation.engine_of import layout_of
from headrace.plan.step.step import StepCounter, Storage
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_families import tiny_family, tiny_family_names
from tools.counts.tiny_model import checkpoint_of

LONG_TOKENS = 32_768
BLOCK_TOKENS = 16
STEP_TOKENS = 512
CATALOG = Catalog.load()
BF16 = kv_kind("BF16", CATALOG)


def planned(config: dict[str, Any]) -> KvCache:
    return KvCache(shape_of_config(config), BF16, BF16, BLOCK_TOKENS)


def kept_bytes(layers: list[LayerKV], tokens: int) -> int:
    """Bytes of so many tokens in layers that keep those of their window, in whole blocks."""
    lengths = [min(tokens, layer.window or tokens) for layer in layers]
    blocks = [-(-length // BLOCK_TOKENS) * BLOCK_TOKENS for length in lengths]
    return sum(2 * layer.values * kept for layer, kept in zip(layers, blocks, strict=True))


@pytest.mark.parametrize("name", tiny_family_names())
def test_the_cache_of_every_family_is_what_its_layers_keep(name: str) -> None:
    wrong = []
    for case, overrides in tiny_family(name).CASES.items():
        config = tiny_config(name, **overrides)
        kept = read_config(checkpoint_of(config, {})).layer_caches
        layers = [layer for layer in kept if isinstance(layer, LayerKV)]
        cache = planned(config)
        layout = cache_layout(kept)
        block_bytes = layout.spec(BLOCK_TOKENS, 1, "bf16", "bf16").block_bytes
        blocks = most_blocks_of(layout.groups, LONG_TOKENS, BLOCK_TOKENS, STEP_TOKENS)
        expected = sum(2 * layer.values for layer in layers), kept_bytes(layers, LONG_TOKENS)
        found = cache.bytes_per_token, cache.request_bytes(LONG_TOKENS)
        # Beside what is kept a request holds the tokens of a step, in whole blocks of all groups.
        if found != expected or block_bytes * blocks < found[1]:
            wrong.append((case, found, expected, block_bytes * blocks))
    assert not wrong


def test_chunks_of_llama4_are_counted_as_such_from_config_and_catalog(shared_assets: Path) -> None:
    folder = shared_assets / "model-configs" / "hf-config"
    for model in ("Scout-17B-16E", "Maverick-17B-128E"):
        name = f"meta-llama--Llama-4-{model}-Instruct_config.json"
        cache = planned(json.loads((folder / name).read_text(encoding="utf-8")))
        # 2 x 8 heads x 128 x 2 bytes; 12 layers see everything and 36 a chunk of 8,192.
        assert cache.request_bytes(LONG_TOKENS) == 4096 * (12 * LONG_TOKENS + 36 * 8192)
        row = CATALOG.models[f"llama-4-{model.partition('-')[0].lower()}"]
        of_row = KvCache(shape_of_catalog(row), BF16, BF16, BLOCK_TOKENS)
        assert of_row.request_bytes(LONG_TOKENS) == cache.request_bytes(LONG_TOKENS)
        assert not any("chunk" in note for note in (*cache.shape.notes, *of_row.shape.notes))


def test_layers_with_shapes_of_their_own_are_sized_as_published(shared_assets: Path) -> None:
    folder = shared_assets / "model-configs" / "hf-config"
    path = folder / "nvidia--Llama-3_3-Nemotron-Super-49B-v1_config.json"
    shape = shape_of_config(json.loads(path.read_text(encoding="utf-8")))
    assert sum(layer.count for layer in shape.attention) == 49
    assert sum(layer.count for layer in shape.dense) == 80
    assert round(shape.parameters.total / 1e9, 2) == 49.87


def test_layers_that_share_a_cache_read_it_and_keep_none() -> None:
    config = tiny_config("gemma4_text", **tiny_family("gemma4_text").CASES["gemma4-inputs"])
    cache = planned(config)
    shape = cache.shape
    shared = [layer for layer in shape.attention if layer.shared]
    assert shared and all(layer not in shape.keeping for layer in shared)
    assert cache.read_bytes(8) > 8 * cache.bytes_per_token
    counter = StepCounter(shape, Storage(bytes_per_weight=2))
    # The last token reads all before it and itself, and is written once.
    assert counter.decode(1, 8).kv_bytes == cache.read_bytes(9) + cache.bytes_per_token
    layout = layout_of(shape)
    assert layout is not None
    assert sum(place is None for place in layout.places) == sum(layer.count for layer in shared)
    tensors = tiny_checkpoint("gemma4_text", **tiny_family("gemma4_text").CASES["gemma4-inputs"])
    keys = [name for name in tensors.tensors if name.endswith("k_proj.weight")]
    assert len(keys) == sum(layer.count for layer in shape.keeping)


def test_a_model_that_the_engine_does_not_know_is_read_by_its_keys() -> None:
    config = {**tiny_config("llama"), "model_type": "odd"}
    assert declared_layers(config) is None
    assert planned(config).bytes_per_token == planned(tiny_config("llama")).bytes_per_token
    windows = {**config, "layer_types": ["chunked_attention", "full_attention"]}
    windows |= {"num_hidden_layers": 2, "attention_chunk_size": 64}
    assert [layer.window_tokens for layer in planned(windows).shape.attention] == [64, None]


def test_the_work_of_planning_grows_with_the_number_of_layers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    attention_of = DecoderConfig.attention_of

    def counted(config: DecoderConfig, layer: int) -> AttentionShape:
        looked_at.append(layer)
        return attention_of(config, layer)

    monkeypatch.setattr(DecoderConfig, "attention_of", counted)
    declared = declared_layers(tiny_config("cohere2", num_hidden_layers=300))
    assert declared is not None
    assert sum(declared.attention.values()) == 300
    assert looked_at == [*range(300)]
