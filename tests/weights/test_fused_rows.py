"""Orders of rows in one matrix of Q, K and V, and matrices turned."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.weights.checkpoint import Conventions
from headrace.weights.tensors.fused_rows import grouped_to_joined, joined_to_grouped, loaded_order
from headrace.weights.tensors.rope_rows import heads_to_half
from tests.tiny import to_tensor

SHAPES = [(4, 1, 2), (4, 2, 6), (6, 6, 4), (71, 1, 2), (8, 4, 2)]


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
def test_grouped_rows_are_joined_as_converters_do(heads: int, kv_heads: int, head_dim: int) -> None:
    """Views as transformers' _split_heads and llama.cpp's converter take them."""
    stored = np.arange((heads + 2 * kv_heads) * head_dim)
    groups = stored.reshape(kv_heads, heads // kv_heads + 2, head_dim)
    parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
    expected = np.concatenate([part.ravel() for part in parts])
    order = grouped_to_joined(heads, kv_heads, head_dim)
    assert np.array_equal(stored[order], expected)
    back = joined_to_grouped(heads, kv_heads, head_dim)
    assert np.array_equal(expected[back], stored)
    assert order.dtype == back.dtype == np.int32


def test_one_head_of_k_and_v_is_both() -> None:
    assert np.array_equal(grouped_to_joined(4, 1, 8), np.arange(48))


def test_loaded_order_undoes_both_conventions() -> None:
    assert loaded_order(Conventions(), 4, 2, 8, None) is None
    values = np.arange(64)
    interleaved = loaded_order(Conventions(rope_layout="interleaved"), 4, 2, 8, 4)
    assert interleaved is not None
    assert np.array_equal(interleaved[:48], heads_to_half(6, 8, 4))
    assert np.array_equal(interleaved[48:], np.arange(48, 64))
    both = loaded_order(Conventions(rope_layout="interleaved", qkv_layout="grouped"), 4, 2, 8, 4)
    assert both is not None
    joined = values[grouped_to_joined(4, 2, 8)]
    assert np.array_equal(values[both], joined[interleaved])


@pytest.mark.parametrize("codec", ["F32", "F16", "BF16"])
def test_a_turned_matrix_has_the_same_values(codec: str) -> None:
    tensor = to_tensor("m", np.random.default_rng(0).standard_normal((3, 5)).astype("f4"), codec)
    turned = tensor.transposed()
    assert turned.shape == (5, 3) and turned.codec is tensor.codec
    assert np.array_equal(turned.to_f32(), tensor.to_f32().T)
    assert np.array_equal(turned.transposed().data, tensor.data)


def test_what_cannot_be_turned_is_refused() -> None:
    blocks = to_tensor("m", np.zeros((32, 64), np.float32), "Q8_0")
    vector = to_tensor("v", np.zeros(32, np.float32), "F32")
    for tensor in (blocks, vector):
        with pytest.raises(ValueError, match="cannot be transposed"):
            tensor.transposed()
