"""Norms, rounding, rotation and the writing of K and V by the kernels: bits of the plain backend
where operations are rounded one by one, bounds elsewhere; run as products_interpreted.py is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheSpec, KVCodec, LayerPlace
from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps
from headrace.ops.torch import TorchOps, attention, rounding
from headrace.ops.torch.triton import rows
from tests.ops.cpu import test_near as near
from tests.ops.cpu.cases import UNIT, Request, batch_of, named, normal, shape_of
from tests.ops.cpu.test_kv_codecs import spoilt_rows
from tests.ops.torch.bounds import of_norm
from tests.ops.torch.on_host import DEVICE, kernel_ops, torch_ops

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()


@pytest.mark.parametrize("size", [32, 256])
def test_rows_are_rounded_to_the_same_bits(size: int) -> None:
    """Whether each block of 32 has a scale of its own or eight share one."""
    x = normal(1, 7, 3 * size)
    x[1, :size], x[2, size + 8], x[3, 2 * size + 6], x[4, :size] = 0, np.inf, np.nan, 1e-38
    x[5] = np.arange(3 * size) - 1.5 * size + 0.5  # Many halves, after the division too.
    given = torch.from_numpy(x).to(DEVICE)
    scales, numbers = rounding.quantised(given, size)
    scales = scales.repeat_interleave(size // 32, dim=1)
    got, got_scales, sums = rows.quantised(given, size, with_sums=True)
    assert torch.equal(got_scales.nan_to_num(7, 9, 9), scales.nan_to_num(7, 9, 9))
    finite = scales.isfinite().repeat_interleave(32, dim=1)
    assert torch.equal(got.float()[finite], numbers[finite])
    assert sums is not None
    assert torch.equal(sums, got.float().unflatten(1, (-1, 32)).sum(dim=2))


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms(kind: str) -> None:
    ops, x, residual = kernel_ops(), normal(7, 5, 172) + np.float32(0.5), normal(8, 5, 172)
    for bias in (None, normal(3, 1, 172)[0]):
        norm = Norm(normal(1, 1, 172)[0], 1e-5, kind, bias)  # type: ignore[arg-type]
        got, want = ops.norm(x, norm), REFERENCE.norm(x, norm)
        assert (np.abs(got - want) <= of_norm(x, norm, want)).all()
        assert (ops.norm(x, norm, residual=residual) == got + residual).all()
        assert (ops.norm(x[3:4].copy(), norm) == got[3:4]).all()
        wide = np.concatenate([normal(9, 5, 30), x, normal(10, 5, 7)], axis=1)
        changed, want = wide.copy(), wide.copy()
        for each, of in ((ops, changed), (REFERENCE, want)):
            each.norm_columns(of, 30, norm, groups=4)
        assert (changed[:, :30] == wide[:, :30]).all() and (changed[:, 202:] == wide[:, 202:]).all()
        for start in range(30, 202, 43):
            part, own = slice(start, start + 43), slice(start - 30, start + 13)
            of_bias = None if bias is None else bias[own]
            of_group = Norm(norm.weight[own], 1e-5, kind, of_bias)  # type: ignore[arg-type]
            limit = of_norm(wide[:, part], of_group, want[:, part])
            assert (np.abs(changed[:, part] - want[:, part]) <= limit).all()


CASES: tuple[tuple[AttentionShape, tuple[KVCodec, KVCodec]], ...] = (
    (shape_of(1, 2, 16), ("f32", "bf16")),
    (shape_of(2, 1, 24), ("q8_0", "int8")),
    (AttentionShape(2, 1, 24, 0.2, value_dim=20), ("fp8", "q8_0")),
    (AttentionShape(3, 1, 24, 0.2, value_dim=16, latent=True), ("bf16", "bf16")),
)


def stored(ops: Ops, shape: AttentionShape, codecs: tuple[KVCodec, KVCodec], x: np.ndarray,
           rotary_dim: int | None, norms: dict[str, Norm]) -> tuple[np.ndarray, bytes]:  # fmt: skip
    """Rows after the rotation, and the bytes of the pool."""
    place = LayerPlace(
        0, 0, shape.num_kv_heads, shape.head_dim, shape.value_dim, shape.latent,
        k_scale=0.37, v_scale=1.9,
    )  # fmt: skip
    kv = ops.kv_cache(KVCacheSpec((place,), 16, 3, *codecs))
    batch = batch_of([Request(1, 9, len(x), np.array([2, 0], np.int32))])
    x = x.copy()
    if rotary_dim is None:
        ops.kv_write(x, shape, kv, 0, batch)
    else:
        frequencies = 10000.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
        table = ops.rope_table(frequencies, 30, attention_factor=1.1)
        ops.rope_and_write(x, shape, table, kv, 0, batch, **norms)
    return x, kv.arrays.pages.cpu().numpy().tobytes()


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[1]))
def test_rotation_and_writing_have_the_bits_of_one_after_the_other(
    case: tuple[AttentionShape, tuple[KVCodec, KVCodec]],
) -> None:
    shape, codecs = case
    x = spoilt_rows(shape, 8)
    x[~np.isfinite(x)] = 3.0
    for rotary_dim in (None, 16, shape.head_dim):
        results = [
            stored(ops, shape, codecs, x, rotary_dim, {}) for ops in (kernel_ops(), torch_ops())
        ]
        with named(rotary_dim=rotary_dim):
            assert (results[0][0] == results[1][0]).all()
            assert results[0][1] == results[1][1]


def test_heads_have_norms_before_their_rotation() -> None:
    shape = shape_of(1, 2, 24)
    norm, other = (Norm(normal(seed, 1, 24)[0], 1e-6) for seed in (1, 2))
    x = normal(16, 5, shape.row_width)
    for norms in ({"q_norm": norm, "k_norm": other}, {"k_norm": other}):
        got, want = (
            stored(ops, shape, ("f32", "f32"), x, 16, norms)[0]
            for ops in (kernel_ops(), torch_ops())
        )
        # Norms of two orders of sums, each as far from what is exact as the other, turned.
        largest = np.abs(want[:, : 3 * 24]).max()
        assert np.abs(got - want).max() <= 2 * (4 + 8) * UNIT * 2 * 1.1 * largest
        assert (got[:, 3 * 24 :] == x[:, 3 * 24 :]).all()


def test_what_is_no_number_is_stored_as_the_reference_stores_it() -> None:
    """Scales that are not finite, and codes of zero beside them; E4M3's and bfloat16's NaN."""
    shape = shape_of(1, 1, 16)
    x = normal(3, 4, shape.row_width)
    x[0, 20], x[1, 35], x[2, 17] = np.nan, np.nan, np.inf
    for codec in ("int8", "q8_0", "fp8", "bf16", "f32"):
        pages = []
        for ops in (kernel_ops(), torch_ops()):
            values = np.frombuffer(stored(ops, shape, (codec, codec), x, None, {})[1], np.uint8)
            pages.append(values.copy())
        # Which NaN there is does not matter.
        if codec == "bf16":
            pages = [np.where((page.view(np.uint16) & 0x7FFF) > 0x7F80, 1, page.view(np.uint16))
                     for page in pages]  # fmt: skip
        elif codec != "fp8":
            pages = [np.nan_to_num(page.view(np.float32), nan=7) for page in pages]
        assert (pages[0] == pages[1]).all(), codec


def test_every_float_is_rounded_to_e4m3_as_torch_rounds() -> None:
    """Halves between two numbers, and what lies beside them, of every exponent."""
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    numbers = numbers[numbers.isfinite()].unique().numpy()
    middles = (numbers[1:] + numbers[:-1]) / 2
    beside = [np.nextafter(middles, np.float32(end)) for end in (-np.inf, np.inf)]
    given = np.concatenate([numbers, middles, *beside, [5e4, -5e4, 1e-30]])
    given = np.resize(given.astype(np.float32), (-(-len(given) // 32) * 2, 16))
    shape = shape_of(1, 1, 16)
    x = np.zeros((len(given) // 2, shape.row_width), np.float32)
    x[:, 16:] = given.reshape(len(x), 32)
    count, pages = -(-len(x) // 16), []
    batch = batch_of([Request(1, 0, len(x), np.arange(count, dtype=np.int32))])
    for ops in (kernel_ops(), torch_ops()):
        kv = ops.kv_cache(KVCacheSpec.uniform(1, 1, 16, 16, count, "fp8", "fp8"))
        ops.kv_write(x, shape, kv, 0, batch)
        pages.append(kv.arrays.pages.cpu().numpy())
    assert (pages[0] == pages[1]).all()


def test_what_is_near_is_written_too() -> None:
    shape, codecs = near.CASES[3]
    shape = replace(shape, num_heads=2)
    found = []
    for kernels in (True, False):
        ops = TorchOps(DEVICE, threads=1)
        kv = ops.kv_cache(near.near_spec(shape, 2, *codecs))
        batch = batch_of([Request(1, 0, 20, np.array([0, 1], np.int32))])
        batch = replace(batch, block_tables=(batch.block_tables[0], batch.block_tables[0] + 2))
        x = torch.from_numpy(normal(3, 20, shape.row_width)).to(DEVICE)
        bound = ops.bind(batch, kv).bound
        attention.write(x, shape, kv.arrays, kv.spec.place(1), bound, kernels=kernels)
        found.append(kv.arrays.pages.cpu())
    assert torch.equal(found[0], found[1])
