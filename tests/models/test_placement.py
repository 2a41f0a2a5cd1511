"""Experts on another backend than the rest: the seam loses nothing, in every family with any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.models import load_model
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.ops.operands import Array
from headrace.ops.placement import ALL_LAYERS, layer_of_expert, with_experts
from headrace.ops.reference import ReferenceOps
from tests.engine.mock import real_ops
from tests.models.cases import Session, prompt
from tests.models.test_expert_families import WITH_EXPERTS
from tests.tiny import tiny_checkpoint

TOKENS = 6


class CountingOps(ReferenceOps):
    """The reference, and how often rows left it and came back."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[str] = []

    def host_rows(self, arrays: Any) -> list[Any]:
        self.copies.append("out")
        return super().host_rows(arrays)

    def from_host(self, values: Any) -> Array:
        self.copies.append("back")
        return super().from_host(values)


def logits_of(family: str, ops: Ops, codec: str = "Q8_0") -> Any:
    return Session(load_model(tiny_checkpoint(family, codec), ops), ops).feed(prompt(3)[:TOKENS])


@pytest.mark.parametrize("family", WITH_EXPERTS)
def test_two_backends_of_one_arithmetic_give_the_bits_of_one(family: str) -> None:
    """Both are the kernels; of all layers, and of the first one that has experts."""
    real_ops("cpu")
    one = make_ops("cpu", threads=1)
    expected = logits_of(family, one)
    names = tiny_checkpoint(family, "Q8_0").tensors
    first = min(layer for name in names if (layer := layer_of_expert(name)) is not None)
    for layers in (first + 1, ALL_LAYERS):
        placed = with_experts(one, make_ops("cpu", threads=1), layers)
        assert np.array_equal(logits_of(family, placed), expected)


@pytest.mark.parametrize("layers", [0, 1, 2, ALL_LAYERS])
def test_a_layer_costs_one_copy_each_way(layers: int) -> None:
    real_ops("cpu")
    rest = CountingOps()
    ops = with_experts(rest, make_ops("cpu", threads=1), layers)
    model = load_model(tiny_checkpoint("qwen3_moe", "F32"), ops)
    Session(model, ops).feed(prompt(3)[:TOKENS])
    assert rest.copies == ["out", "back"] * min(layers, model.config.num_layers)


def test_a_shared_expert_stays_with_the_rest() -> None:
    """It is a mixture of one, and its name has no number; a layer of one expert has no choice."""
    assert layer_of_expert("model.layers.3.mlp.experts.7.up_proj.weight") == 3
    assert layer_of_expert("model.layers.12.block_sparse_moe.experts.0.w1.weight") == 12
    for name in ("mlp.shared_expert.up_proj.weight", "mlp.gate.weight", "self_attn.q_proj.weight"):
        assert layer_of_expert(f"model.layers.3.{name}") is None
    assert layer_of_expert("experts.1.weight") is None
    real_ops("cpu")
    there = make_ops("cpu", threads=1, expert_cache_bytes=1 << 30)
    ops = with_experts(make_ops("cpu", threads=1), there, ALL_LAYERS)
    model = load_model(tiny_checkpoint("qwen2_moe", "Q8_0"), ops)
    Session(model, ops).feed(prompt(3)[:TOKENS])
    stats = there.expert_cache_stats()
    assert stats is not None and ops.expert_cache_stats() == stats
    routed = [t for name, t in tiny_checkpoint("qwen2_moe", "Q8_0").tensors.items()
              if layer_of_expert(name) is not None]  # fmt: skip
    assert 0 < stats.held_bytes <= sum(tensor.nbytes for tensor in routed)
