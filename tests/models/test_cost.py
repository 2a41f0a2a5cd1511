"""Counts of bytes and operations against counting one by one."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.models import load_model
from headrace.models.cost import CostModel, StepCost
from headrace.ops import make_ops
from headrace.ops.interface import AttentionShape
from tests.tiny import tiny_checkpoint

SHAPE = AttentionShape(num_heads=4, num_kv_heads=2, head_dim=8, scale=1.0)


@pytest.mark.parametrize("windows", [(0, 0), (5, 5), (0, 5, 5), (1,)])
def test_counts_are_those_of_counting_one_by_one(windows: tuple[int, ...]) -> None:
    model = CostModel(
        weight_bytes=1000,
        layer_elements=70,
        head_elements=9,
        attention=SHAPE,
        windows=windows,
        kv_token_bytes=64,
    )
    rows = [(0, 7, True), (3, 1, True), (4, 1, False), (30, 12, False)]
    moved, operations = 1000, 0
    for start, count, samples in rows:
        operations += 2 * 70 * count + 2 * 9 * samples
        for window in windows:
            seen = set()
            for position in range(start, start + count):
                first = max(0, position - window + 1) if window else 0
                seen.update(range(first, position + 1))
                operations += 4 * 4 * 8 * (position + 1 - first)
            moved += 64 * (len(seen) + count)
    assert model.of(rows) == StepCost(moved, operations)
    assert model.of([]) == StepCost(0, 0)


def test_a_loaded_model_counts_its_own_matrices() -> None:
    checkpoint = tiny_checkpoint("llama", tied=True)
    model = load_model(checkpoint, make_ops("reference"))
    matrices = [
        int(np.prod(tensor.shape))
        for name, tensor in checkpoint.tensors.items()
        if len(tensor.shape) == 2 and "embed" not in name
    ]
    head = int(np.prod(checkpoint.tensors["model.embed_tokens.weight"].shape))
    cost = model.cost("f32", "f32").of([(0, 1, True)])
    attention = 2 * 4 * 4 * 16  # layers, q.K and p.V, heads, head_dim; one position
    assert cost.operations == 2 * sum(matrices) + 2 * head + attention
    kv_token = 2 * 2 * 2 * 16 * 4  # layers, K and V, kv heads, head_dim, bytes
    assert cost.bytes == model.step_weight_bytes + 2 * kv_token
