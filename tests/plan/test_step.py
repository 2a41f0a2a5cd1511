"""Bytes and operations of steps: by hand, against the register, against models/cost.py."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.models.cost import CostModel, LayerCost, RowCost
from headrace.ops.kv import AttentionShape
from headrace.plan.model.layer_shape import StateLayers
from headrace.plan.step.step import StepCounter, Storage, stored_as_header, touched_experts
from tests.plan.shapes import BILLION, DENSE_70B, MOE, MOE_LAYERS, gqa, mla, shape

FP16 = Storage(bytes_per_weight=2)


def test_f13_prefill_of_1000_tokens_of_a_70b_is_140_tflop() -> None:
    work = StepCounter(DENSE_70B, FP16).prefill(1000)
    assert work.weight_operations == 140e12
    # 80 layers · 4 · 64 heads · 128 · (1 + 2 + … + 1000)
    assert work.attention_operations == 80 * 4 * 64 * 128 * 500_500


def test_f11_decode_of_one_token_is_two_bytes_and_two_operations_a_weight() -> None:
    work = StepCounter(DENSE_70B, FP16).decode(1, 0)
    assert work.weight_operations == 140e9
    assert work.weight_bytes == 140e9 + 2 * 8192  # and one row of the embedding
    assert work.work.intensity == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    ("tokens", "percent"), [(1000, 0.9), (8000, 7.5), (32_000, 30), (131_072, 123)]
)
def test_share_of_attention_in_prefill_of_a_70b(tokens: int, percent: float) -> None:
    work = StepCounter(DENSE_70B, FP16).prefill(tokens)
    share = work.attention_operations / work.weight_operations * 100
    assert share == pytest.approx(percent, rel=0.045 if tokens == 1000 else 0.005)


def test_f8_f9_kv_read_of_a_70b() -> None:
    counter = StepCounter(DENSE_70B, FP16)
    # A step after 4,095 tokens sees 4,096, its own among them, and writes one.
    assert counter.decode(1, 4095).kv_bytes == 1_342_177_280 + 327_680
    assert counter.decode(32, 32_767).kv_bytes == 32 * (10 * 2**30 + 327_680)


def test_a_window_ends_what_is_read_and_computed() -> None:
    counter = StepCounter(shape((gqa(1, window_tokens=100),), attention=BILLION), FP16)
    far, near = counter.decode(1, 10_000), counter.decode(1, 99)
    assert far.kv_bytes == near.kv_bytes == 4096 * 101
    assert far.attention_operations == near.attention_operations == 4 * 64 * 128 * 100


def test_latent_attention_reads_one_vector_and_computes_more() -> None:
    counter = StepCounter(shape((mla(),), attention=BILLION), FP16)
    assert counter.decode(1, 0).kv_bytes == 2 * 70_272
    decode, prefill = counter.decode(1, 99), counter.prefill(1, 99)
    assert decode.attention_operations == 61 * 2 * 128 * (2 * 512 + 64) * 100
    assert prefill.attention_operations == 61 * 2 * 128 * (192 + 128) * 100


@pytest.mark.parametrize(("tensor", "copies"), [(1, 1), (8, 1), (16, 2)])
def test_kv_heads_are_kept_twice_where_devices_are_more(tensor: int, copies: int) -> None:
    one = StepCounter(DENSE_70B, FP16).decode(4, 1000).kv_bytes
    assert StepCounter(DENSE_70B, FP16, tensor=tensor).decode(4, 1000).kv_bytes == copies * one


def test_every_device_keeps_a_latent_cache_whole() -> None:
    latent = shape((mla(),), attention=BILLION)
    one = StepCounter(latent, FP16).decode(4, 1000).kv_bytes
    assert StepCounter(latent, FP16, tensor=8).decode(4, 1000).kv_bytes == 8 * one


def test_kinds_of_keys_and_values_count_apart() -> None:
    storage = Storage(bytes_per_weight=2, bytes_per_key_value=1, bytes_per_value_value=0.5)
    counter = StepCounter(DENSE_70B, storage)
    assert counter.decode(1, 0).kv_bytes == 2 * 80 * 1024 * 1.5


def test_the_head_works_where_logits_are_wanted() -> None:
    model = shape((gqa(1),), attention=1000, head=500, embedding=500, hidden_size=10)
    counter = StepCounter(model, FP16)
    assert counter.prefill(7).weight_operations == 2 * (7 * 1000 + 500)
    assert counter.prefill(7, last=False).weight_operations == 2 * 7 * 1000
    assert counter.prefill(7, last=False).weight_bytes == 2 * (1000 + 70)
    assert counter.decode(3, 9, 4).weight_operations == 2 * 12 * 1500
    tied = shape((gqa(1),), attention=1000, embedding=500, tied=True, hidden_size=10)
    assert StepCounter(tied, FP16).prefill(7).weight_bytes == 2 * (1000 + 500 + 70)


def test_states_are_read_and_written_whatever_the_context() -> None:
    model = shape((StateLayers(3, "linear", 1000, 10),), attention=1000, hidden_size=10)
    counter = StepCounter(model, FP16)
    assert counter.decode(2, 5).state_bytes == 2 * 2 * 3 * (4 * 1000 + 2 * 10)
    assert counter.decode(2, 5000) == counter.decode(2, 5)
    assert counter.decode(2, 5).state_operations == 2 * 4 * 3 * 1000


def test_touched_experts_by_hand() -> None:
    assert touched_experts(8, 2, 1) == pytest.approx(2)
    assert touched_experts(8, 2, 2) == pytest.approx(3.5)
    assert touched_experts(128, 8, 32) == pytest.approx(111.77, abs=0.01)
    assert touched_experts(128, 8, 10_000) == pytest.approx(128)
    assert touched_experts(128, 8, 0) == 0
    assert touched_experts(4, 4, 1) == 4


def test_a_mixture_reads_what_is_touched_and_computes_what_is_used() -> None:
    counter = StepCounter(MOE, FP16)
    expert = 48 * 4_718_592
    one = counter.decode(1, 0)
    assert one.weight_bytes == pytest.approx(2 * (BILLION + 8 * expert + 2048))
    assert one.weight_operations == pytest.approx(2 * (BILLION + 8 * expert))
    many = counter.decode(32, 0)
    assert many.weight_bytes == pytest.approx(
        2 * (BILLION + touched_experts(128, 8, 32) * expert + 32 * 2048)
    )
    assert many.weight_operations == pytest.approx(32 * one.weight_operations)


@pytest.mark.parametrize("window", [None, 48])
def test_counts_are_those_of_a_loaded_model(window: int | None) -> None:
    model = shape(
        (gqa(4, window), gqa(2)), attention=5000, ffn=7000, head=900, embedding=900, hidden_size=4
    )
    loaded = CostModel(
        weight_bytes=2 * 12_900,
        layer_elements=12_000,
        head_elements=900,
        layers=[
            LayerCost(AttentionShape(64, 8, 128, 1.0, limit), 2 * 2 * 8 * 128)
            for limit in [window or 0] * 4 + [0] * 2
        ],
    )
    counter = StepCounter(model, FP16)
    for start, count in ((0, 1), (0, 100), (17, 31), (40, 20), (500, 7)):
        expected = loaded.of([RowCost(start, count, True)])
        work = counter.prefill(count, start).work
        assert work.operations == expected.operations
        assert work.bytes == expected.bytes + 2 * 4 * count  # rows of the embedding


def test_storage_of_a_header_is_its_average() -> None:
    assert stored_as_header(DENSE_70B) is None
    model = replace(DENSE_70B, weight_bytes={"Q4_K": 30 * BILLION, "F32": 5 * BILLION})
    storage = stored_as_header(model, bytes_per_key_value=1)
    assert storage == Storage(bytes_per_weight=0.5, bytes_per_key_value=1)


tokens = st.integers(1, 5000)


@given(batch=st.integers(1, 400), more=st.integers(1, 400), context=st.integers(0, 50_000))
def test_bigger_batches_take_more_work_in_all_and_less_bytes_each(
    batch: int, more: int, context: int
) -> None:
    counter = StepCounter(MOE, FP16)
    small, large = counter.decode(batch, context).work, counter.decode(batch + more, context).work
    assert large.bytes > small.bytes
    assert large.operations > small.operations
    assert large.bytes / (batch + more) < small.bytes / batch
    assert counter.decode(batch, context + more).work.bytes > small.bytes


@given(first=tokens, second=tokens)
def test_chunks_compute_what_the_whole_does(first: int, second: int) -> None:
    counter = StepCounter(DENSE_70B, FP16)
    whole = counter.prefill(first + second).work
    parts = (counter.prefill(first, last=False).work, counter.prefill(second, first).work)
    assert sum(part.operations for part in parts) == whole.operations
    assert sum(part.bytes for part in parts) > whole.bytes


@given(experts=st.integers(1, 512), used=st.integers(1, 512), tokens=tokens, more=tokens)
def test_experts_touched_grow_to_all(experts: int, used: int, tokens: int, more: int) -> None:
    used = min(experts, used)
    few, many = (touched_experts(experts, used, count) for count in (tokens, tokens + more))
    assert used - 1e-9 <= few <= many <= experts


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Storage(bytes_per_weight=0), "bytes_per_weight is 0.*above 0"),
        (lambda: StepCounter(MOE, FP16, tensor=0), "tensor is 0.*at least 1"),
        (lambda: StepCounter(MOE, FP16).prefill(0), "chunk_tokens is 0.*at least 1"),
        (lambda: StepCounter(MOE, FP16).decode(0, 1), "batch is 0.*at least 1"),
        (lambda: StepCounter(MOE, FP16).decode(1, -1), "context_tokens is -1.*at least 0"),
        (lambda: touched_experts(4, 5, 1), "experts - experts_per_token is -1"),
    ],
)
def test_errors_name_field_value_and_limit(call: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()  # type: ignore[operator]


def test_moe_layers_are_those_of_the_catalog() -> None:
    assert MOE_LAYERS.expert_parameters == 3 * 2048 * 768
