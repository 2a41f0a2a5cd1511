"""Products on the torch backend: against the reference with a bound from error analysis, and each
row against itself with ==.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from headrace.ops.interface import Ops
from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps
from headrace.ops.reference.arithmetic import round_bf16, round_quantised
from headrace.ops.shared import values_of_a_scale
from headrace.weights.codecs import OF_FOLDERS
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import CODECS, F32, matrix, named, normal, vector, whole_blocks

pytest.importorskip("torch", reason="the torch backend needs PyTorch")
from headrace.ops.torch import TorchOps
from tests.ops.torch.bounds import of_product
from tests.ops.torch.on_host import DEVICE, OnHost, threads, torch_ops

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()
ALL = (*CODECS, *OF_FOLDERS)


@pytest.fixture(scope="module")
def ops() -> Ops:
    return torch_ops()


@cache
def stored(seed: int, out: int, width: int, codec: str) -> Tensor:
    """A matrix of any kind, those of folders too: random codes under scales of about 1 / width."""
    if codec not in OF_FOLDERS:
        return matrix(seed, out, width, codec)
    kind, rng = OF_FOLDERS[codec], np.random.default_rng(seed)
    blocks = np.empty((out, width // kind.block_elements), kind.layout)
    for name in kind.layout.names or ():
        field = kind.layout[name]
        shape = (*blocks.shape, *field.shape)
        if name == "d":
            blocks[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32) / width
        elif name == "e":  # scales in E4M3, none of them huge
            blocks[name] = rng.integers(40, 64, shape, np.uint8)
        else:
            blocks[name] = rng.integers(0, 256 if name == "qs" else 16, shape, np.uint8)
    return Tensor(codec, (out, width), kind, blocks.view(np.uint8).reshape(out, -1))


def width_of(codec: str, least: int) -> int:
    block = OF_FOLDERS[codec].block_elements if codec in OF_FOLDERS else 1
    return -(-least // block) * block if codec in OF_FOLDERS else whole_blocks(codec, least)


def operand(x: F32, codec: str) -> np.ndarray:
    """Rows as weights of this kind see them."""
    if codec in ("F32", "F16", "NF4"):
        return x
    if codec in ("BF16", "F8_E4M3"):
        return round_bf16(x)
    return np.array([round_quantised(row, values_of_a_scale(codec, row.size)) for row in x])


@pytest.mark.computes("products", "torch", "bound", kinds=ALL)
@pytest.mark.computes("products", "reference", "bound", kinds=ALL)
@pytest.mark.smoke
@pytest.mark.parametrize("codec", ALL)
def test_agrees_with_the_reference(ops: Ops, codec: str) -> None:
    for out, least, rows in ((40, 96, 5), (17, 700, 20)):
        width = width_of(codec, least)
        tensor, x = stored(5, out, width, codec), normal(6, rows, width)
        residual, bias = normal(7, rows, out), vector(8, out)
        weights = [each.linear_weight([tensor], bias=[bias]) for each in (ops, REFERENCE)]
        got = ops.linear(x, weights[0], residual=residual, scale=0.75)
        want = REFERENCE.linear(x, weights[1], residual=residual, scale=0.75)
        limit = of_product(operand(x, codec), tensor.to_f32(), bias.to_f32(), residual)
        with named(codec=codec, out=out, width=width, rows=rows):
            assert (np.abs(got - want) <= limit).all(), float((np.abs(got - want) / limit).max())
            assert weights[0].nbytes <= tensor.nbytes + 4 * out * -(-width // 16)


@pytest.mark.parametrize("codec", ALL)
def test_a_row_does_not_depend_on_the_others(ops: Ops, codec: str) -> None:
    width, out = width_of(codec, 352), 70
    weight = ops.linear_weight([stored(8, out, width, codec)])
    x, residual = normal(5, 41, width), normal(6, 41, out)
    norm = Norm(normal(7, 1, width)[0], 1e-6)
    whole = ops.linear(x, weight, norm=norm, residual=residual)
    assert (ops.linear(ops.norm(x, norm), weight, residual=residual) == whole).all()
    for rows in (1, 2, 15, 16, 17, 33):
        for start in (0, 41 - rows):
            part = slice(start, start + rows)
            alone = ops.linear(x[part].copy(), weight, norm=norm, residual=residual[part].copy())
            assert (alone == whole[part]).all(), (codec, rows, start)


@pytest.mark.parametrize("count", [1, 4])
def test_threads_leave_a_row_what_it_is_alone(ops: Ops, count: int) -> None:
    """In products large enough to be shared out among threads."""
    for codec in ("F32", "BF16", "Q8_0"):
        weight, x = ops.linear_weight([matrix(9, 1500, 1024, codec)]), normal(5, 70, 1024)
        with threads(count):
            whole = ops.linear(x, weight)
            for rows in (1, 17, 64):
                alone = ops.linear(x[70 - rows :].copy(), weight)
                assert (alone == whole[70 - rows :]).all(), (codec, rows)


def test_parts_biases_and_row_orders_are_stacked(ops: Ops) -> None:
    order = np.random.default_rng(0).permutation(37).astype(np.int32)
    for codec in CODECS:
        width = whole_blocks(codec, 64)
        first, second = matrix(1, 37, width, codec).select_rows(order), matrix(2, 21, width, codec)
        x = normal(3, 4, width)
        fused = ops.linear(x, ops.linear_weight([first, second], bias=[None, vector(4, 21)]))
        plain = ops.linear(x, ops.linear_weight([matrix(1, 37, width, codec)]))
        assert (fused[:, :37] == plain[:, order]).all(), codec
        apart = ops.linear(x, ops.linear_weight([second], bias=[vector(4, 21)]))
        assert (fused[:, 37:] == apart).all(), codec


def test_columns_may_have_an_order_of_their_own(ops: Ops) -> None:
    order = np.random.default_rng(1).permutation(256).astype(np.int32)
    plain = stored(3, 20, 256, "I4_128")
    turned = Tensor("turned", plain.shape, plain.codec, plain.data, column_order=order)
    x = normal(4, 3, 256)
    got = ops.linear(x, ops.linear_weight([turned]))
    assert (got == ops.linear(x[:, order].copy(), ops.linear_weight([plain]))).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows_in_its_own_row_only(ops: Ops, bad: float) -> None:
    others = np.arange(20) != 7
    for codec in ALL:
        width = width_of(codec, 64)
        weight = ops.linear_weight([stored(1, 40, width, codec)])
        x = normal(2, 20, width)
        clean = ops.linear(x, weight)
        x[7, 33] = bad
        spoilt = ops.linear(x, weight)
        assert (spoilt[others] == clean[others]).all(), codec
        assert not np.isfinite(spoilt[7]).any(), codec


def test_tables_are_decoded_as_files_have_them(ops: Ops) -> None:
    for codec in ALL:
        width = width_of(codec, 64)
        table = stored(4, 33, width, codec).select_rows(np.arange(32, -1, -1, dtype=np.int32))
        ids, residual = np.array([5, 0, 32, 5], np.int32), normal(9, 4, width)
        weights: list[Any] = [each.embedding_weight(table) for each in (ops, REFERENCE)]
        got = ops.embedding(weights[0], ids, scale=1.5, residual=residual)
        assert (got == REFERENCE.embedding(weights[1], ids, scale=1.5, residual=residual)).all()


def test_a_tied_table_lies_on_the_device_once(ops: Ops) -> None:
    """As `check_weights_fit` counts it; another tensor of the same bytes is another."""
    x = normal(2, 3, 64)
    for codec in ("F32", "Q8_0"):
        tensor = matrix(1, 40, 64, codec)
        table = ops.embedding_weight(tensor)
        head = ops.linear_weight([tensor], bias=[vector(4, 40)])
        assert head.packed.matrix.data.data_ptr() == table.packed.data.data_ptr()
        other = ops.linear_weight([replace(tensor)], bias=[vector(4, 40)])
        assert other.packed.matrix.data.data_ptr() != table.packed.data.data_ptr()
        assert (ops.linear(x, head) == ops.linear(x, other)).all()
        held = weakref.ref(table.packed)
        del table, head
        assert held() is None, "the file's tensor holds nothing on the device"


def test_heads_have_the_bits_of_linear(ops: Ops) -> None:
    heads = [matrix(20 + head, 24, 64, "Q8_0") for head in range(3)]
    x, beside = normal(4, 18, 3 * (8 + 64)), normal(5, 18, 7)
    got = ops.head_linear(x, ops.head_weight(heads), kept=8, beside=beside)
    parts = []
    for head, tensor in enumerate(heads):
        own = x[:, head * 72 : (head + 1) * 72]
        parts += [own[:, :8], ops.linear(own[:, 8:].copy(), ops.linear_weight([tensor]))]
    assert (got == np.concatenate([*parts, beside], axis=1)).all()


def test_no_rows_give_no_rows(ops: Ops) -> None:
    weight = ops.linear_weight([matrix(1, 40, 64, "Q8_0")])
    assert ops.linear(np.empty((0, 64), np.float32), weight).shape == (0, 40)


def test_what_does_not_fit_is_refused(ops: Ops) -> None:
    weight = ops.linear_weight([matrix(1, 40, 64)])
    with pytest.raises(ValueError, match=r"x must be float32\[N, 64\]"):
        ops.linear(normal(1, 2, 65), weight)
    with pytest.raises(ValueError, match="residual has 3 rows, x has 2"):
        ops.linear(normal(1, 2, 64), weight, residual=normal(1, 3, 40))
    with pytest.raises(ValueError, match="kept -1 is negative"):
        ops.head_linear(normal(1, 2, 64), ops.head_weight([matrix(1, 4, 64)]), kept=-1)
    with pytest.raises(ValueError, match="token id 9 is not in"):
        ops.embedding(ops.embedding_weight(matrix(1, 9, 64)), np.array([9], np.int32))


@pytest.mark.parametrize("codec", ["F32", "BF16", "Q8_0", "Q4_K", "F8_E4M3"])
def test_without_reproducible_a_library_has_all_rows_at_once(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the bounds of the reference, as the tiles of the default are."""
    import torch

    out, rows, width = 40, 40, width_of(codec, 200)
    tensor, x = stored(5, out, width, codec), normal(6, rows, width)
    want = REFERENCE.linear(x, REFERENCE.linear_weight([tensor]))
    limit = of_product(operand(x, codec), tensor.to_f32())
    mm, counts = torch.mm, []

    def counted(left: Any, *others: Any, **named: Any) -> Any:
        counts.append(len(left))
        return mm(left, *others, **named)

    monkeypatch.setattr(torch, "mm", counted)
    for reproducible, expected in ((True, [16, 16, 16]), (False, [40])):
        ops: Any = OnHost(TorchOps(DEVICE, threads=1, kernels=False, reproducible=reproducible))
        got = ops.linear(x, ops.linear_weight([tensor]))
        assert (np.abs(got - want) <= limit).all()
        assert DEVICE != "cpu" or counts == expected
        counts.clear()
