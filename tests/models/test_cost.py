"""Counts of bytes and operations against counting one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.models import load_model
from headrace.models.cost import CostModel, ExpertCost, LayerCost, StepCost
from headrace.ops import make_ops
from headrace.ops.kv import AttentionShape
from headrace.plan.model.model_shape import shape_of_config
from headrace.plan.step.step import StepCounter, Storage
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_families import tiny_family, tiny_family_names

SHAPE = AttentionShape(num_heads=4, num_kv_heads=2, head_dim=8, scale=1.0)


@pytest.mark.parametrize("kind", ["window", "chunk"])
@pytest.mark.parametrize("windows", [(0, 0), (5, 5), (0, 5, 5), (1,)])
def test_counts_are_those_of_counting_one_by_one(windows: tuple[int, ...], kind: str) -> None:
    model = CostModel(
        weight_bytes=1000,
        layer_elements=70,
        head_elements=9,
        layers=[LayerCost(replace(SHAPE, **{kind: window}), 64) for window in windows],
    )
    rows = [(0, 7, True), (3, 1, True), (4, 1, False), (30, 12, False)]
    moved, operations, attention = 1000, 0, 0
    for start, count, samples in rows:
        operations += 2 * 70 * count + 2 * 9 * samples
        for window in windows:
            seen: set[int] = set()
            for position in range(start, start + count):
                first = max(0, position - window + 1) if window else 0
                if window and kind == "chunk":
                    first = position // window * window
                seen.update(range(first, position + 1))
                attention += 4 * 4 * 8 * (position + 1 - first)
            moved += 64 * (len(seen) + count)
    assert model.of(rows) == StepCost(moved, operations + attention, attention)
    assert model.of([]) == StepCost(0, 0, 0)


@pytest.mark.parametrize("chunk", [1, 5, 8, 64])
def test_a_token_in_a_chunk_meets_no_other_chunk(chunk: int) -> None:
    layer = LayerCost(replace(SHAPE, chunk=chunk), 64)
    model = CostModel(weight_bytes=1000, layer_elements=70, head_elements=9, layers=[layer])
    rows = [(0, 7, True), (3, 1, True), (8, 1, False), (30, 12, False)]
    moved, operations, attention = 1000, 0, 0
    for start, count, samples in rows:
        operations += 2 * 70 * count + 2 * 9 * samples
        seen: set[int] = set()
        for position in range(start, start + count):
            of_token = range(position // chunk * chunk, position + 1)
            seen.update(of_token)
            attention += 4 * 4 * 8 * len(of_token)
        moved += 64 * (len(seen) + count)
    assert model.of(rows) == StepCost(moved, operations + attention, attention)


def test_a_loaded_model_counts_its_own_matrices() -> None:
    checkpoint = tiny_checkpoint("llama", tied=True)
    model = load_model(checkpoint, make_ops("reference"))
    matrices = [
        int(np.prod(tensor.shape))
        for name, tensor in checkpoint.tensors.items()
        if len(tensor.shape) == 2 and "embed" not in name
    ]
    head = int(np.prod(checkpoint.tensors["model.embed_tokens.weight"].shape))
    cost = model.cost(model.cache_layout.spec(1, 1, "f32", "f32")).of([(0, 1, True)])
    attention = 2 * 4 * 4 * 16  # layers, q.K and p.V, heads, head_dim; one position
    assert cost.operations == 2 * sum(matrices) + 2 * head + attention
    assert cost.attention_operations == attention
    kv_token = 2 * 2 * 2 * 16 * 4  # layers, K and V, kv heads, head_dim, bytes
    assert cost.bytes == model.step_weight_bytes + 2 * kv_token


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(8, 2, 1), (8, 2, 3), (60, 4, 32)])
def test_experts_read_are_those_that_chance_gives(experts: int, chosen: int, tokens: int) -> None:
    """Against drawing them; 2,000 draws are within a fiftieth of the expectation."""
    rng = np.random.default_rng(0)
    drawn = [
        len({int(e) for _ in range(tokens) for e in rng.permutation(experts)[:chosen]})
        for _ in range(2000)
    ]
    cost = ExpertCost(experts, chosen, bytes=experts * 1000, elements=experts * 10)
    assert cost.bytes_read(tokens) == pytest.approx(1000 * np.mean(drawn), rel=0.02)
    assert cost.bytes_read(1) == chosen * 1000
    assert cost.operations_of_token == 2 * chosen * 10


@pytest.mark.parametrize("family", tiny_family_names())
@pytest.mark.parametrize("batch", [1, 5])
def test_the_planner_counts_the_same_step(family: str, batch: int) -> None:
    """Of a decode step in F32, apart from norms, biases and rows of the tables, which it counts."""
    for overrides in tiny_family(family).CASES.values():
        checkpoint = tiny_checkpoint(family, **overrides)
        model = load_model(checkpoint, make_ops("reference"))
        cost = model.cost(model.cache_layout.spec(1, 1, "bf16", "bf16")).of([(10, 1, True)] * batch)
        shape = shape_of_config(tiny_config(family, **overrides), "tiny", "a test")
        work = StepCounter(shape, Storage(bytes_per_weight=4)).decode(batch, 10).work
        vectors = sum(t.nbytes for t in checkpoint.tensors.values() if len(t.shape) == 1)
        rows = 4 * batch * shape.hidden_size
        assert work.bytes == pytest.approx(cost.bytes, abs=vectors + rows)
        assert work.operations == pytest.approx(cost.operations, abs=vectors * batch)


@pytest.mark.parametrize("family", ["glm4_moe", "qwen2_moe", "deepseek_v3"])
def test_a_model_with_experts_counts_its_own_matrices(family: str) -> None:
    """Only chosen experts are met by a token; a shared one and routers are met by every token."""
    checkpoint = tiny_checkpoint(family)
    model = load_model(checkpoint, make_ops("reference"))
    experts = model.config.experts
    assert experts is not None
    shapes = {name: t.shape for name, t in checkpoint.tensors.items() if len(t.shape) == 2}
    routed = sum(int(np.prod(s)) for name, s in shapes.items() if ".experts." in name)
    others = sum(
        int(np.prod(s))
        for name, s in shapes.items()
        if ".experts." not in name and "embed" not in name
    )
    share = experts.routing.experts_per_token / experts.routing.num_experts
    widths = model.attention.head_dim + model.attention.value_width
    attention = model.config.num_layers * 2 * 4 * widths
    cost = model.cost(model.cache_layout.spec(1, 1, "f32", "f32")).of([(0, 1, True)])
    assert cost.operations == 2 * (others + routed * share) + attention
    table = checkpoint.tensors["model.embed_tokens.weight"].nbytes
    assert model.step_weight_bytes == checkpoint.nbytes - 4 * routed - table
