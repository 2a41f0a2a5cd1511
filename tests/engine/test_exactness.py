"""On real arithmetic: whatever runs beside a request, its tokens and logprobs are the same bits."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from headrace.models import load_model
from headrace.ops.kv import KVCacheArrays
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.open import open_checkpoint
from tests.engine.mock import real_ops
from tests.engine.streams import (
    BLOCK_SIZE,
    GROUPS,
    KINDS,
    TINY,
    cases,
    check_streams,
    check_together_is_what_alone_is,
)
from tests.models.shipped_moe import SHIPPED
from tests.tiny import tiny_checkpoint
from tests.tiny_families import tiny_family


def runs() -> list[object]:
    """The kernels with every codec on both families; 64 streams, and the reference, with every
    codec on one of them in turn."""
    families = ("llama", "qwen3")
    made: list[object] = []
    for index, codec in enumerate(("F32", "BF16", "Q8_0")):
        made += [(family, "cpu", codec, 16) for family in families]
        made += [
            pytest.param(
                families[(index + other) % 2], backend, codec, count, marks=pytest.mark.load
            )
            for other, (backend, count) in enumerate((("cpu", 64), ("reference", 16)))
        ]
    return made


@pytest.mark.parametrize(("family", "backend", "codec", "count"), runs())
def test_together_is_bit_for_bit_what_alone_is(
    family: str, backend: str, codec: str, count: int
) -> None:
    check_together_is_what_alone_is(family, {}, backend, codec, cases(count))


@pytest.mark.parametrize(
    ("family", "kv", "v", "count"),
    [
        ("qwen3", "int8", "auto", 12),
        ("llama", "fp8", "q4_0", 12),
        ("llama", "q4_0", "auto", 12),
        *(
            pytest.param("llama", kv, "auto", 64, marks=pytest.mark.load)
            for kv in ("fp8", "int8", "q8_0", "q4_0")
        ),
        pytest.param("gemma2", "q8_0", "q4_0", 64, marks=pytest.mark.load),
        pytest.param("deepseek_v3", "int8", "auto", 64, marks=pytest.mark.load),
    ],
)
def test_so_it_is_with_a_cache_in_few_bits(family: str, kv: str, v: str, count: int) -> None:
    shape, kinds = GROUPS.get(family, {}), {"kv_cache_dtype": kv, "kv_cache_dtype_v": v}
    check_together_is_what_alone_is(family, shape, "cpu", "Q8_0", cases(count), kinds)


@pytest.mark.parametrize(
    ("family", "kinds", "backend", "count"),
    [
        ("gemma2", "full", "cpu", 12),
        ("llama", "near", "cpu", 12),
        # Each kind, and each family with two: how layers are grouped is the families' own, and what
        # is stored in which kind is the groups'.
        *(
            pytest.param(family, kinds, "cpu", 64, marks=pytest.mark.load)
            for family, two in (
                ("gemma2", ("full", "near")),
                ("gpt_oss", ("sliding", "far")),
                ("llama4_text", ("both", "near")),
            )
            for kinds in two
        ),
        pytest.param("deepseek_v3", "latents", "cpu", 64, marks=pytest.mark.load),
        pytest.param("gemma2", "full", "reference", 12, marks=pytest.mark.load),
    ],
)
def test_so_it_is_with_a_kind_for_each_group_of_layers(
    family: str, kinds: str, backend: str, count: int
) -> None:
    shape = (GROUPS | TINY).get(family, {})
    check_together_is_what_alone_is(family, shape, backend, "Q8_0", cases(count), KINDS[kinds])


@pytest.mark.parametrize(
    ("backend", "codec", "count"),
    [
        ("cpu", "Q8_0", 12),
        pytest.param("reference", "F32", 12, marks=pytest.mark.load),
        pytest.param("cpu", "BF16", 64, marks=pytest.mark.load),
    ],
)
@pytest.mark.parametrize("family", GROUPS)
def test_groups_of_layers_give_the_same_bits_as_a_request_alone(
    family: str, backend: str, codec: str, count: int
) -> None:
    check_together_is_what_alone_is(family, GROUPS[family], backend, codec, cases(count))


OTHERS = {
    # Chunks in most layers, queries that grow with the position in the others.
    "llama4": ("llama4_text", {"attention_chunk_size": 72}),
    # Heads of two widths, last layers that read K and V of earlier ones, inputs of layers.
    "gemma4-inputs": ("gemma4_text", {"sliding_window": 24}),
    # Values narrower than keys, sinks and more heads of K and V in layers with a window.
    "mimo-v2-flash": ("mimo_v2_flash", {"sliding_window": 24}),
    # Layers without attention, and of widths of their own.
    "nemotron-nas": ("nemotron-nas", {}),
    # Norms of heads behind the rotation.
    "hunyuan": ("hunyuan_v1_dense", {}),
}


@pytest.mark.load
@pytest.mark.parametrize("case", OTHERS)
def test_layers_of_other_kinds_give_the_same_bits_as_a_request_alone(case: str) -> None:
    family, change = OTHERS[case]
    shape = tiny_family(family).CASES[case] | change
    check_together_is_what_alone_is(family, shape, "cpu", "F32", cases(24))


@pytest.mark.parametrize(
    ("backend", "codec", "kv"),
    [
        ("cpu", "Q8_0", "bf16"),
        pytest.param("reference", "F32", "f32", marks=pytest.mark.load),
    ],
)
def test_latents_give_the_same_bits_as_a_request_alone(backend: str, codec: str, kv: str) -> None:
    shape, kinds = TINY["deepseek_v3"], {"kv_cache_dtype": kv}
    check_together_is_what_alone_is("deepseek_v3", shape, backend, codec, cases(12), kinds)


@pytest.mark.load
@pytest.mark.parametrize(("codec", "kv"), [("BF16", "f32"), ("Q8_0", "bf16")])
@pytest.mark.parametrize("family", TINY)
def test_64_streams_with_experts_give_the_same_bits_as_each_alone(
    family: str, codec: str, kv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tiny_checkpoint(family, codec, logit_scale=2.0, **TINY[family])  # type: ignore[arg-type]
    check_64_streams(checkpoint, kv, monkeypatch)


@pytest.mark.load
@pytest.mark.skipif(
    not SHIPPED.exists(), reason="models/ is in the repository, in no sdist and no wheel"
)
@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_64_streams_of_headrace_moe_give_the_same_bits_as_each_alone(
    kv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_64_streams(open_checkpoint(SHIPPED), kv, monkeypatch)


def check_64_streams(checkpoint: Checkpoint, kv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of stream occurs: greedy and drawn, cancelled midway, going on from a prefix that
    ends within a block, preempted.
    """
    ops = real_ops("cpu")
    copied: list[tuple[int, int]] = []
    kv_copy = ops.kv_copy

    def noted(arrays: KVCacheArrays, pairs: npt.NDArray[np.int32]) -> None:
        copied.extend(map(tuple, pairs.tolist()))
        kv_copy(arrays, pairs)

    monkeypatch.setattr(ops, "kv_copy", noted)
    rng = random.Random(64)
    requests = cases(64, rng)
    for at in rng.sample(range(64), 8):
        requests[at] = replace(requests[at], cancel_after_tokens=rng.randint(1, 8))
    together = check_streams(load_model(checkpoint, ops), ops, requests, {"kv_cache_dtype": kv})
    assert {case.submit.params.temperature for case in requests} == {0.0, 0.7, 1.5}
    ends = [together[case.submit.request_id] for case in requests]
    midway = [end for end in ends if end.finish_reason == "abort" and end.token_ids]
    assert len(midway) >= 3
    assert sum(end.outputs[-1].num_preemptions > 0 for end in ends) >= 3
    hits = [end.outputs[0].cached_tokens for end in ends]
    assert any(hit > BLOCK_SIZE and hit % BLOCK_SIZE for hit in hits) and copied
