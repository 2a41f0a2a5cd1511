"""From what layers keep to groups, block tables and places."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models.layer_cache import (
    CacheKind,
    CacheKinds,
    CacheLayout,
    LayerCache,
    LayerKV,
    SharedKV,
    cache_layout,
)
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheSpec, LayerPlace, RaggedBatch

FULL, LOCAL = LayerKV(2, 16), LayerKV(2, 16, window=128)


def places(layout: CacheLayout) -> list[tuple[int, int] | None]:
    return [place and (place.table, place.index) for place in layout.places]


def test_layers_that_keep_the_same_are_one_group_with_one_table() -> None:
    layout = cache_layout([FULL] * 5)
    assert (layout.layers_per_block, layout.num_tables) == (5, 1)
    assert [(group.window, group.layers) for group in layout.groups] == [(0, (0, 1, 2, 3, 4))]
    assert places(layout) == [(0, index) for index in range(5)]
    assert cache_layout([LOCAL] * 3).groups[0].window == 128


def test_blocks_of_two_groups_have_one_size() -> None:
    """gpt-oss: every other layer has a window, 12 of 24."""
    layout = cache_layout([LOCAL, FULL] * 12)
    assert (layout.layers_per_block, layout.num_tables) == (12, 2)
    assert [group.window for group in layout.groups] == [128, 0]
    assert places(layout)[:4] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert len(set(places(layout))) == 24


@pytest.mark.parametrize(
    ("local", "full", "layers_per_block"), [(22, 4, 2), (29, 5, 1), (40, 8, 8), (52, 10, 2)]
)
def test_a_group_of_more_layers_has_more_tables(
    local: int, full: int, layers_per_block: int
) -> None:
    """The sizes of Gemma 3."""
    layout = cache_layout([LOCAL] * local + [FULL] * full)
    assert layout.layers_per_block == layers_per_block
    counts = [group.num_tables for group in layout.groups]
    assert counts == [local // layers_per_block, full // layers_per_block]
    found = places(layout)
    assert len(set(found)) == local + full
    assert {place[0] for place in found if place} == set(range(sum(counts)))
    first_full = found[local]
    assert first_full == (counts[0], 0), "tables follow the order of the groups"


def test_a_layer_that_shares_lies_where_the_other_does_and_one_without_attention_nowhere() -> None:
    layers: list[LayerCache] = [FULL, None, LOCAL, SharedKV(2), SharedKV(0)]
    layout = cache_layout(layers)
    assert places(layout) == [(0, 0), None, (1, 0), (1, 0), (0, 0)]
    assert [group.layers for group in layout.groups] == [(0,), (2,)]
    spec = layout.spec(16, 3, "f32", "f32")
    assert spec.place(3) == LayerPlace(1, 0, 2, 16)
    with pytest.raises(ValueError, match="layer 1 keeps no K and V"):
        spec.place(1)
    for layer in (-1, 5):
        with pytest.raises(ValueError, match=rf"layer {layer} is not in \[0, 5\)"):
            spec.place(layer)


def test_what_no_pool_holds_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="no layer of the model keeps K and V"):
        cache_layout([None, None])
    with pytest.raises(UnsupportedModelError, match=r"layer 1 shares .* layer 2, which keeps none"):
        cache_layout([FULL, SharedKV(2), None])


MODELS: dict[str, tuple[list[LayerCache], int, float]] = {
    # Layers, then tables and the share of blocks that is empty.
    "gpt_oss_20b": ([LayerKV(8, 64, 128), LayerKV(8, 64)] * 12, 2, 0.0),
    "gemma3_4b": ([LayerKV(4, 256, 1024 if i % 6 else 0) for i in range(1, 35)], 34, 0.0),
    "gemma4_31b": ([LayerKV(16, 256, 1024)] * 50 + [LayerKV(4, 512)] * 10, 11, 0.0),
    "mimo_v2_flash": (
        [LayerKV(8, 192, 128, 128)] * 39 + [LayerKV(4, 192, 0, 128)] * 9,
        44,
        1280 / (44 * 2560),
    ),
    "nemotron_nas": ([LayerKV(8, 128), None, LayerKV(2, 128), LayerKV(4, 128)] * 20, 1, 0.0),
    "deepseek_v3": ([LayerKV(1, 576, 0, 512, latent=True)] * 61, 1, 0.0),
}


def values_by_table(layout: CacheLayout) -> dict[int, int]:
    """Values that a token takes in each table."""
    spec = layout.spec(16, 1, "bf16", "bf16")
    tables: dict[int, int] = {}
    for place in {place for place in layout.places if place is not None}:
        tables[place.table] = tables.get(place.table, 0) + spec.token_bytes(place) // 2
    return tables


@pytest.mark.parametrize("name", MODELS)
def test_layers_of_published_models_waste_little(name: str) -> None:
    layers, num_tables, empty = MODELS[name]
    layout = cache_layout(layers)
    assert layout.num_tables == num_tables
    tables = values_by_table(layout)
    page = layout.spec(16, 1, "bf16", "bf16").block_bytes // (2 * 16)
    assert 1 - sum(tables.values()) / (page * num_tables) == pytest.approx(empty, abs=1e-9)


def test_a_token_of_deepseek_v3_takes_576_values_a_layer() -> None:
    layout = cache_layout(MODELS["deepseek_v3"][0])
    assert layout.spec(16, 1, "bf16", "bf16").block_bytes == 16 * 61 * 576 * 2


@pytest.mark.parametrize("seed", range(40))
def test_any_layers_are_packed_without_overlap_and_no_worse_than_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    widths = [(rng.choice([1, 2, 4, 8]), 2 * rng.randint(1, 128)) for _ in range(3)]
    windows = rng.sample([0, 128, 512], rng.randint(1, 3))
    layers: list[LayerCache] = []
    for _ in range(rng.randint(1, 70)):
        heads, head_dim = rng.choice(widths)
        kept = LayerKV(heads, head_dim, rng.choice(windows), latent=rng.random() < 0.2)
        layers.append(kept if rng.random() < 0.9 or not layers else None)
    layout = cache_layout(layers)
    found = [place for place in layout.places if place is not None]
    assert len({(place.table, place.index) for place in found}) == len(found)
    for layer, place in zip(layers, layout.places, strict=True):
        assert (place is None) == (layer is None)
        if place is not None and isinstance(layer, LayerKV):
            assert (place.num_kv_heads, place.head_dim) == (layer.num_kv_heads, layer.head_dim)
            assert place.latent == layer.latent
    for group in layout.groups:  # each has tables of its own, with no gap between indices
        tables = {place.table for i in group.layers if (place := layout.places[i])}
        others = {p.table for i, p in enumerate(layout.places) if p and i not in group.layers}
        assert len(tables) == group.num_tables
        assert not tables & others
    for table in range(layout.num_tables):
        indices = sorted(place.index for place in found if place.table == table)
        assert indices == list(range(len(indices)))
    tables_of = values_by_table(layout)
    page, kept_values = max(tables_of.values()), sum(tables_of.values())
    widest = max(layer.values for layer in layers if isinstance(layer, LayerKV))
    one_by_one = widest * len(found)
    assert page * layout.num_tables <= one_by_one
    assert page * layout.num_tables >= kept_values


def test_a_block_has_the_bytes_of_its_layers() -> None:
    spec = cache_layout([LOCAL] * 6 + [FULL] * 2).spec(16, 10, "bf16", "f32")
    assert spec.num_blocks == 10
    assert spec.block_bytes == 2 * 16 * 2 * 16 * (2 + 4)


def test_layers_in_tables_of_their_own_are_the_same_bits(ops: Ops) -> None:
    """Four layers in one table, or two of them in each of two whose blocks are mixed."""
    shape = AttentionShape(2, 1, 16, 0.25)
    rng = np.random.default_rng(3)
    tokens = 40
    rows = rng.standard_normal((4, tokens, 4 * 16)).astype(np.float32)

    def attended(spec: KVCacheSpec, tables: list[list[int]]) -> list[np.ndarray]:
        kv = ops.kv_cache(spec)
        batch = RaggedBatch(
            token_ids=np.zeros(tokens, np.int32),
            positions=np.arange(tokens, dtype=np.int32),
            query_start=np.array([0, tokens], np.int32),
            block_tables=tuple(np.array([table], np.int32) for table in tables),
            logit_rows=np.zeros(0, np.int32),
        )
        for layer in range(4):
            ops.kv_write(rows[layer], shape, kv, layer, batch)
        return [ops.paged_attention(rows[i], shape, kv, i, batch) for i in range(4)]

    together = attended(KVCacheSpec.uniform(4, 1, 16, 16, 3, "f32", "bf16"), [[2, 0, 1]])
    places = tuple(LayerPlace(layer % 2, layer // 2, 1, 16) for layer in range(4))
    mixed = KVCacheSpec(places, 16, 6, "f32", "bf16")
    for mine, expected in zip(attended(mixed, [[4, 1, 2], [0, 5, 3]]), together, strict=True):
        assert np.array_equal(mine, expected)
    with pytest.raises(ValueError, match="the batch has 1 block tables"):
        attended(mixed, [[4, 1, 2]])


def test_kinds_of_their_own_pack_layers_by_bytes() -> None:
    layers: list[LayerCache] = [LOCAL, FULL] * 6
    kinds = CacheKinds(CacheKind("q4_0", "q4_0"), CacheKind("bf16", "bf16"))
    layout = cache_layout(layers).stored_as(kinds)
    spec = layout.spec(16, 1, "q4_0", "q4_0")
    of = {spec.codecs(place) for place in layout.places[::2] if place is not None}
    assert of == {("bf16", "bf16")}
    token = sum(spec.token_bytes(place) for place in layout.places if place is not None)
    assert token <= layout.num_tables * spec.block_bytes // 16 <= token * 1.25
    alike = CacheKinds.of("fp8")
    assert cache_layout(layers).stored_as(alike).places == cache_layout(layers).places


def test_what_is_near_lies_in_a_group_of_chunks() -> None:
    kind = CacheKind("q4_0", "q8_0", near=True)
    layers: list[LayerCache] = [LOCAL, FULL, SharedKV(1), None, FULL]
    layout = cache_layout(layers).stored_as(CacheKinds(kind, kind))
    (near,) = (group for group in layout.groups if group.near)
    assert (near.name, near.window, near.chunked, near.layers) == ("near", 64, True, (0, 1, 4))
    kept = [place for place in layout.places if place is not None]
    tables = {place.near[0] for place in kept if place.near is not None}
    assert len(tables) == near.num_tables and not tables & {place.table for place in kept}
    assert layout.places[2] == layout.places[1]
    spec = layout.spec(16, 1, "q4_0", "q8_0")
    of_table: dict[int, int] = {}
    for place in set(kept):
        of_table[place.table] = of_table.get(place.table, 0) + spec.token_bytes(place)
        assert place.near is not None
        bf16 = place.num_kv_heads * 2 * (place.head_dim + (place.value_dim or place.head_dim))
        of_table[place.near[0]] = of_table.get(place.near[0], 0) + bf16
    assert spec.block_bytes == 16 * max(of_table.values())
