"""The KV table of the research, formulas F8 and F9, windows, states, blocks, devices."""

from __future__ import annotations

import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.memory.kv_cache import KvCache, kv_kind
from headrace.plan.model.model_shape import shape_of_catalog

CATALOG = Catalog.load()
F16 = kv_kind("F16", CATALOG)
GIB = 2**30


def cache(model: str, kind: str = "F16", **options: int) -> KvCache:
    stored = kv_kind(kind, CATALOG)
    return KvCache(shape_of_catalog(CATALOG.models[model]), stored, stored, **options)


@pytest.mark.parametrize(
    ("model", "per_token", "gib"),
    [
        ("llama-2-7b", 524_288, (2, 4, 16, 64)),
        ("llama-2-13b", 819_200, (3.125, 6.25, 25, 100)),
        ("llama-1-65b", 2_621_440, (10, 20, 80, 320)),
        ("llama-2-70b", 327_680, (1.25, 2.5, 10, 40)),
        ("llama-3.1-70b", 327_680, (1.25, 2.5, 10, 40)),
        ("llama-3.1-8b", 131_072, (0.5, 1, 4, 16)),
        ("mistral-7b", 131_072, (0.5, 0.5, 0.5, 0.5)),  # the table leaves its window out
        ("qwen3-32b", 262_144, (1, 2, 8, 32)),
        ("qwen3-30b-a3b", 98_304, (0.375, 0.75, 3, 12)),
        ("qwen3-235b-a22b", 192_512, (0.734375, 1.46875, 5.875, 23.5)),
        # the table counts chunks in full: 12 layers see everything, 36 chunks of 8,192 tokens
        ("llama-4-maverick", 196_608, (0.75, 1.5, 2.625, 7.125)),
        ("mixtral-8x22b", 229_376, (0.875, 1.75, 7, 28)),
        ("deepseek-v3", 70_272, (0.2681, 0.5361, 2.1445, 8.578)),
        ("deepseek-r1", 70_272, (0.2681, 0.5361, 2.1445, 8.578)),
        ("kimi-k2", 70_272, (0.2681, 0.5361, 2.1445, 8.578)),
    ],
)
def test_the_table_of_verified_models(model: str, per_token: int, gib: tuple[float, ...]) -> None:
    found = cache(model)
    if all(layer.window_tokens is None for layer in found.shape.attention):
        assert found.endless_bytes_per_token == per_token
    assert found.bytes_per_token == per_token
    for tokens, expected in zip((4096, 8192, 32_768, 131_072), gib, strict=True):
        assert found.request_bytes(tokens) / GIB == pytest.approx(expected, rel=2e-4)


def test_f8_f9_and_the_batch_of_32() -> None:
    llama = cache("llama-3.1-70b")
    assert llama.request_bytes(4096) == 2 * 80 * 8 * 128 * 4096 * 2 == 1_342_177_280
    assert llama.request_bytes(32_768) == 10 * GIB
    assert 32 * llama.request_bytes(32_768) == 320 * GIB


def test_latent_attention_is_a_fraction_of_what_heads_would_take() -> None:
    """F20: 576 values against 2,048 of 8 KV heads of 128 a layer."""
    latent = shape_of_catalog(CATALOG.models["deepseek-v3"]).attention[0]
    assert latent.values_per_token == 576
    assert 2 * 8 * 128 / latent.values_per_token == pytest.approx(3.56, abs=0.005)
    assert 128 * (128 + 128) / latent.values_per_token == pytest.approx(56.9, abs=0.05)


def test_windows_end_what_half_the_layers_of_gpt_oss_keep() -> None:
    found = cache("gpt-oss-120b")
    one_kind = 18 * 2 * 8 * 64 * 2
    assert found.bytes_per_token == 2 * one_kind == 73_728
    assert found.endless_bytes_per_token == one_kind
    assert found.request_bytes(131_072) == one_kind * (131_072 + 128)
    assert found.request_bytes(131_072) / GIB == pytest.approx(4.504, abs=1e-3)
    assert found.request_bytes(64) == found.bytes_per_token * 64


def test_states_do_not_grow() -> None:
    nemotron = cache("nemotron-3-nano-30b-a3b")
    state = 23 * (4 * 64 * 64 * 128 + 2 * 3 * (64 * 64 + 2 * 8 * 128))
    assert nemotron.state_bytes == state == 49_082_368
    assert nemotron.bytes_per_token == 6 * 2 * 2 * 128 * 2 == 6144
    assert nemotron.request_bytes(16) == state + 16 * 6144
    mamba = cache("mamba2-2.7b")
    assert mamba.bytes_per_token == 0 < mamba.state_bytes
    assert mamba.request_bytes(10) == mamba.request_bytes(1_000_000)
    assert mamba.most_tokens(mamba.state_bytes, limit=5000) == 5000


@pytest.mark.parametrize(
    ("kind", "share"),
    [("F32", 2), ("bf16", 1), ("fp16", 1), ("Q8_0", 8.5 / 16), ("Q4_0", 4.5 / 16), ("fp8", 0.5),
     ("int8", 8.5 / 16), ("int4", 4.5 / 16), ("Q5_1", 6 / 16)],
)  # fmt: skip
def test_kinds_scale_all_of_it(kind: str, share: float) -> None:
    assert cache("llama-3.1-8b", kind).bytes_per_token == 131_072 * share


def test_keys_and_values_may_differ() -> None:
    shape = shape_of_catalog(CATALOG.models["llama-3.1-8b"])
    mixed = KvCache(shape, kv_kind("q8_0", CATALOG), kv_kind("q4_0", CATALOG))
    assert mixed.bytes_per_token == 65_536 * (8.5 + 4.5) / 16


def test_requests_hold_whole_blocks() -> None:
    found = cache("llama-3.1-8b")
    assert found.request_bytes(1) == found.request_bytes(16) == 16 * 131_072
    assert found.request_bytes(17) == 32 * 131_072
    assert found.request_bytes(0) == 0
    assert cache("llama-3.1-8b", block_tokens=32).request_bytes(17) == 32 * 131_072


@pytest.mark.parametrize(("devices", "share"), [(1, 1), (2, 1 / 2), (8, 1 / 8), (16, 1 / 8)])
def test_kv_heads_are_split_and_then_repeated(devices: int, share: float) -> None:
    assert cache("llama-3.1-70b", devices=devices).bytes_per_token == 327_680 * share


def test_a_latent_cache_is_on_every_device() -> None:
    assert cache("deepseek-v3", devices=8).bytes_per_token == 70_272


def test_the_most_that_fits_and_not_one_more() -> None:
    found = cache("llama-3.1-8b")
    tokens = found.most_tokens(4 * GIB, requests=3, limit=131_072)
    assert 3 * found.request_bytes(tokens) <= 4 * GIB < 3 * found.request_bytes(tokens + 1)
    assert found.most_requests(4 * GIB, 8192) == 4
    assert found.most_requests(4 * GIB - 1, 8192) == 3
    assert found.most_tokens(16 * 131_072 - 1) == 0
    assert found.most_requests(-1.0, 8192) == 0


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'q3'.*Q8_0.*fp8"):
        kv_kind("q3", CATALOG)
    with pytest.raises(ConfigError, match="block_tokens is 0"):
        cache("llama-3.1-8b", block_tokens=0)
    with pytest.raises(ConfigError, match="devices is 0"):
        cache("llama-3.1-8b", devices=0)


def test_a_scale_for_each_token_of_a_head_is_counted() -> None:
    eight, four = (cache("llama-3.1-8b", f"{kind}_per_token_head") for kind in ("int8", "int4"))
    assert eight.bytes_per_token == 32 * 2 * 8 * (128 + 4)
    assert four.bytes_per_token == 32 * 2 * 8 * (64 + 4)
    assert eight.keys.mean_bytes_per_value(eight.shape) == 1 + 4 / 128
    assert F16.mean_bytes_per_value(eight.shape) == 2
    latent = cache("deepseek-v3", "int8_per_token_head")
    assert latent.bytes_per_token == 61 * (576 + 4), "one head, without values of its own"
