"""The attention kernel on small shapes: against the reference, and against itself in any company
and however its sums are shared out; run as products_interpreted.py is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.ops.kv import AttentionShape, KVCodec
from headrace.ops.reference import ReferenceOps
from headrace.ops.torch import attention as plain
from headrace.ops.torch.triton import attention, rope
from tests.computations import of_pairs
from tests.ops.cpu import test_near as near
from tests.ops.cpu import test_visibility as visibility
from tests.ops.cpu.attention_cases import expected_ragged, new_cache, ragged, run
from tests.ops.cpu.cases import Request, named, normal, shape_of, shuffled_blocks
from tests.ops.torch.bounds import of_attention
from tests.ops.torch.on_host import DEVICE, kernel_ops

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()
Codecs = tuple[KVCodec, KVCodec]
CASES: tuple[tuple[AttentionShape, Codecs], ...] = (
    (shape_of(2, 1, 8), ("f32", "f32")),
    (replace(shape_of(1, 7, 32), softcap=5.0), ("bf16", "bf16")),
    (replace(shape_of(2, 3, 18), window=40), ("q8_0", "int8")),
    (replace(shape_of(1, 2, 18), chunk=48), ("fp8", "q4_0")),
    (AttentionShape(4, 2, 40, 0.2, value_dim=20), ("q4_0", "fp8")),
    (AttentionShape(17, 1, 48, 0.2, value_dim=32, latent=True), ("bf16", "bf16")),
    (AttentionShape(3, 1, 24, 0.2, value_dim=16, latent=True), ("q4_0", "q4_0")),
    (AttentionShape(3, 1, 24, 0.2, value_dim=16, latent=True), ("q8_0", "q8_0")),
)


OF_CASES = of_pairs(tuple(codecs for _, codecs in CASES))


@pytest.fixture(autouse=True)
def only_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that no kernel computes fails; K and V are written by PyTorch, as the interpreter
    takes long for a program of each head of each token."""

    def refused(*arguments: object) -> None:
        raise AssertionError("attention by PyTorch's operations")

    monkeypatch.setattr(plain._Run, "add", refused)
    if DEVICE == "cpu":
        monkeypatch.setattr(rope, "takes", lambda stored: False)


@pytest.mark.computes("K and V", "triton", "bound", kinds=OF_CASES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[1]))
def test_agrees_with_the_reference(case: tuple[AttentionShape, Codecs]) -> None:
    shape, codecs = case
    block_size = (16, 32, 64)[CASES.index(case) % 3]
    got = ragged(kernel_ops(), shape, block_size, codecs)
    error = np.abs(got - expected_ragged(shape, block_size, codecs))
    assert error.max() <= of_attention(shape, normal(1, 130, shape.row_width), codecs)


def test_sinks_slopes_and_masks() -> None:
    ops = kernel_ops()
    shown = visibility.shown_at_random(4)
    heads = normal(30, 1, 4)[0]
    masks = visibility.packed(shown & np.tri(visibility.LENGTH, dtype=bool))
    shape = replace(shape_of(2, 2, 24), window=70, softcap=4.0)
    for terms, codecs in (
        (visibility.Terms(sinks=heads), ("f32", "f32")),
        (visibility.Terms(slopes=np.abs(heads) / 50), ("q8_0", "int8")),
        (visibility.Terms(heads, np.abs(heads) / 50, masks), ("bf16", "f32")),
    ):
        got = visibility.attend(ops, shape, terms, codecs)  # type: ignore[arg-type]
        want = visibility.attend(REFERENCE, shape, terms, codecs)  # type: ignore[arg-type]
        # A slope's product with the distance and its sum are rounded too, at 150 * 0.06.
        more = 4 * 10 * 2.0**-24 * np.abs(normal(5, 150, shape.row_width)).max()
        limit = of_attention(shape, normal(5, 150, shape.row_width), codecs) + more  # type: ignore[arg-type]
        with named(codecs=codecs, terms=terms):
            assert np.abs(got - want).max() <= limit


@pytest.mark.parametrize("case", near.CASES, ids=lambda case: "-".join(case[1]))
def test_what_is_near_is_read_in_bf16(case: tuple[AttentionShape, Codecs]) -> None:
    shape, codecs = case
    found = near.attended(kernel_ops(), shape, codecs, 999)
    rows = np.concatenate([normal(i, n, shape.row_width) for i, n in enumerate(near.LENGTHS)])
    error = np.abs(found - near.expected(shape, codecs)).max()
    assert error <= of_attention(shape, rows, codecs)


def in_chunks(shape: AttentionShape, length: int, chunk: int, block_size: int) -> np.ndarray:
    """Of a request whose tokens come so many at a time."""
    ops = kernel_ops()
    (table,) = shuffled_blocks(chunk, [length], block_size)
    kv = new_cache(ops, shape, len(table), block_size, "bf16", "q8_0")
    parts = [
        run(ops, shape, kv, [Request(5, at, min(chunk, length - at), table)])
        for at in range(0, length, chunk)
    ]
    return np.concatenate(parts)


def test_a_token_is_the_same_in_any_company() -> None:
    # The interpreter's product is NumPy's, which adds up otherwise in other rows of a tile: chunks
    # begin where tiles of 16 tokens do.
    chunks = ((100, 16), (16, 64), (48, 32)) if DEVICE == "cpu" else ((100, 16), (1, 64), (33, 32))
    for shape in (CASES[2][0], shape_of(3, 2, 16)):
        results = [in_chunks(shape, 100, chunk, block_size) for chunk, block_size in chunks]
        assert (results[1] == results[0]).all() and (results[2] == results[0]).all()


def test_how_sums_are_shared_out_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one program goes over all cuts of the positions or each goes to one of its own; and
    cuts are within the bound too."""
    monkeypatch.setattr(attention, "SPLIT", 1)
    ops = kernel_ops()
    terms = visibility.Terms(sinks=normal(30, 1, 2)[0])
    for shape in (shape_of(1, 2, 16), replace(shape_of(2, 1, 16), window=70)):
        results = []
        for few in (0, 1 << 20):
            monkeypatch.setattr(attention, "FEW_PROGRAMS", few)
            results.append(visibility.attend(ops, shape, terms, ("bf16", "q8_0")))
        assert (results[0] == results[1]).all()
        want = visibility.attend(REFERENCE, shape, terms, ("bf16", "q8_0"))
        limit = of_attention(shape, normal(5, 150, shape.row_width), ("bf16", "q8_0"))
        assert np.abs(results[0] - want).max() <= limit
