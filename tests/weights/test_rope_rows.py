"""Row orders of Q and K, and Llama 3's frequency factors."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.errors import CheckpointError
from headrace.weights.tensors.rope_rows import (
    heads_to_half,
    heads_to_interleaved,
    llama3_factors,
    llama3_scaling_of,
)

from .builders import permuted

LLAMA_3_1 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (4, 16), (3, 6), (8, 128)])
def test_the_orders_are_the_converter_s_and_each_other_s_inverse(heads: int, head_dim: int) -> None:
    rows = np.arange(heads * head_dim, dtype=np.float32)
    interleaved, half = heads_to_interleaved(heads, head_dim), heads_to_half(heads, head_dim)
    assert np.array_equal(rows[interleaved], permuted(rows, heads, head_dim))
    assert np.array_equal(rows[interleaved][half], rows)
    assert half.dtype == np.int32 and half.flags.c_contiguous


def test_a_head_by_hand() -> None:
    # Hugging Face rotates (0, 2) and (1, 3) of four; the file stores them side by side.
    assert heads_to_interleaved(1, 4).tolist() == [0, 2, 1, 3]
    assert heads_to_half(2, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_odd_heads_have_no_pairs() -> None:
    with pytest.raises(ValueError, match="head_dim is 5"):
        heads_to_half(1, 5)


def test_llama3_factors_by_the_definition() -> None:
    """transformers scales the frequency itself; frequency / factor must be the same."""
    head_dim, theta = 128, 500000.0
    frequency = 1.0 / theta ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelength = 2 * np.pi / frequency
    smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
    scaled = np.where(wavelength > 8192, frequency / 8, frequency)
    middle = (wavelength >= 8192 / 4) & (wavelength <= 8192)
    blended = (1 - smooth) * frequency / 8 + smooth * frequency
    expected = np.where(middle, blended, scaled)
    factors = llama3_factors(head_dim, theta, LLAMA_3_1)
    assert factors.dtype == np.float32 and middle.any()
    np.testing.assert_allclose(frequency / factors, expected, rtol=1e-6)


@pytest.mark.torch
def test_llama3_factors_are_transformers_own() -> None:
    torch = pytest.importorskip("torch", reason="compares with transformers, which needs torch")
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = transformers.LlamaConfig(
        hidden_size=512, num_attention_heads=4, rope_theta=500000.0,
        rope_scaling=dict(LLAMA_3_1), max_position_embeddings=131072,
    )  # fmt: skip
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1.0 / 500000.0 ** (np.arange(0, 128, 2) / 128)
    np.testing.assert_allclose(
        plain / llama3_factors(128, 500000.0, LLAMA_3_1), scaled.numpy(), rtol=1e-5
    )


def test_the_scaling_is_found_again_or_not_claimed() -> None:
    factors = llama3_factors(64, 500000.0, LLAMA_3_1 | {"factor": 32.0})
    assert llama3_scaling_of(factors, 64, 500000.0) == LLAMA_3_1 | {"factor": 32.0}
    other = llama3_factors(64, 500000.0, LLAMA_3_1 | {"high_freq_factor": 3.0})
    assert llama3_scaling_of(other, 64, 500000.0) is None
    assert llama3_scaling_of(factors[:-1], 64, 500000.0) is None
    assert llama3_scaling_of(-factors, 64, 500000.0) is None
    factors[3] = np.nan
    assert llama3_scaling_of(factors, 64, 500000.0) is None


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"factor": None}, r"rope_scaling.factor is None"),
        ({"low_freq_factor": "1"}, r"rope_scaling.low_freq_factor is '1'"),
        ({"low_freq_factor": 4.5}, "must not be above high_freq_factor 4.0"),
        ({"original_max_position_embeddings": 0}, "original_max_position_embeddings is 0"),
    ],
)
def test_bad_scaling_is_named(changes: dict[str, object], pattern: str) -> None:
    with pytest.raises(CheckpointError, match=pattern):
        llama3_factors(64, 10000.0, LLAMA_3_1 | changes)
