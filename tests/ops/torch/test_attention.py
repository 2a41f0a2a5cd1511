"""Paged attention on the torch backend: against the reference with a bound from error analysis, and
each token against itself in any company with ==.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCodec
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu import test_near as near
from tests.ops.cpu import test_visibility as visibility
from tests.ops.cpu.attention_cases import expected_ragged, new_cache, ragged, run
from tests.ops.cpu.cases import (
    KV_CODECS,
    Request,
    batch_of,
    named,
    normal,
    shape_of,
    shuffled_blocks,
)
from tests.ops.cpu.test_kv_codecs import spoilt_rows

torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")
from headrace.ops import batch_checks  # noqa: E402
from headrace.ops.torch import attention, kv_codecs  # noqa: E402
from headrace.ops.torch import batch as on_batch  # noqa: E402
from headrace.ops.torch.kv_pool import new_pool  # noqa: E402
from headrace.ops.torch.matrices import on_device  # noqa: E402
from tests.ops.torch.bounds import of_attention  # noqa: E402
from tests.ops.torch.on_host import threads, torch_ops  # noqa: E402

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()
SHAPES = (
    shape_of(2, 1, 8),
    shape_of(1, 2, 64),
    shape_of(2, 4, 80),
    replace(shape_of(1, 7, 128), softcap=5.0),
    replace(shape_of(2, 3, 32), window=40),
    replace(shape_of(1, 2, 18), chunk=48),
    AttentionShape(4, 2, 32, 0.2, value_dim=20),
    AttentionShape(17, 1, 48, 0.2, value_dim=32, latent=True),
)


@pytest.fixture(scope="module")
def ops() -> Ops:
    return torch_ops()


@pytest.mark.parametrize("codecs", KV_CODECS, ids=lambda codecs: "-".join(codecs))
def test_agrees_with_the_reference(ops: Ops, codecs: tuple[KVCodec, KVCodec]) -> None:
    for index, shape in enumerate(SHAPES):
        block_size = (16, 32, 64)[index % 3]
        with named(codecs=codecs, shape=shape, block_size=block_size):
            got = ragged(ops, shape, block_size, codecs)
            error = np.abs(got - expected_ragged(shape, block_size, codecs))
            assert error.max() <= of_attention(shape, normal(1, 130, shape.row_width), codecs)
            if codecs[1] == "bf16":
                # Few p lie near a tie: on average the results are as close as with f32.
                assert error.mean() < 1e-5


@pytest.mark.parametrize("codecs", KV_CODECS, ids=lambda codecs: "-".join(codecs))
def test_neither_chunks_nor_blocks_show(ops: Ops, codecs: tuple[KVCodec, KVCodec]) -> None:
    length = 150
    for shape in (SHAPES[2], SHAPES[4], SHAPES[7]):
        results = []
        for chunk, block_size in ((150, 16), (1, 64), (33, 32), (64, 16)):
            (table,) = shuffled_blocks(chunk, [length], block_size)
            kv = new_cache(ops, shape, len(table), block_size, *codecs)
            parts = [
                run(ops, shape, kv, [Request(5, start, min(chunk, length - start), table)])
                for start in range(0, length, chunk)
            ]
            results.append(np.concatenate(parts))
            with named(shape=shape, chunk=chunk):
                assert (results[-1] == results[0]).all()


@pytest.mark.parametrize("count", [1, 4])
def test_the_batch_does_not_show(ops: Ops, count: int) -> None:
    with threads(count):
        check_that_the_batch_does_not_show(ops)


def check_that_the_batch_does_not_show(ops: Ops) -> None:
    starts, lengths = [0, 90, 64, 0, 200], [40, 91, 130, 1, 201]
    tables = shuffled_blocks(3, lengths, 16)
    requests = [Request(i, starts[i], lengths[i] - starts[i], tables[i]) for i in range(5)]
    for shape in (SHAPES[2], SHAPES[4]):

        def attended(of: list[Request], shape: AttentionShape = shape) -> np.ndarray:
            kv = new_cache(ops, shape, sum(map(len, tables)), 16, "bf16", "q8_0")
            run(ops, shape, kv, [Request(i, 0, s, tables[i]) for i, s in enumerate(starts) if s])
            return run(ops, shape, kv, of)

        alone = [attended([request]) for request in requests]
        assert (attended(requests) == np.concatenate(alone)).all()
        assert (attended(requests[::-1]) == np.concatenate(alone[::-1])).all()


def test_a_step_copies_and_checks_once_for_layers_that_see_alike(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And gives what each layer gives that is handed the batch unbound."""
    shape = SHAPES[4]
    tables = shuffled_blocks(3, [40, 70], 16)
    requests = [Request(i, 0, length, tables[i]) for i, length in enumerate((40, 70))]
    batch, rows = batch_of(requests), np.concatenate([request.rows(shape) for request in requests])
    wide = replace(shape, window=0)
    masks = np.full((110, 2), 2**64 - 1, np.uint64)
    kv = new_cache(ops, shape, sum(map(len, tables)), 16, "bf16", "q8_0")
    ops.kv_write(rows, shape, kv, 1, batch)
    want = [ops.paged_attention(rows, each, kv, 1, batch, masks=masks) for each in (shape, wide)]
    copied, checked = [], []
    monkeypatch.setattr(on_batch, "on_device", counted(on_device, copied))
    monkeypatch.setattr(batch_checks, "check_ids", counted(batch_checks.check_ids, checked))
    bound = ops.bind(batch, kv)
    of_each = []
    for each in (shape, shape, wide, wide):
        before = len(copied), len(checked)
        ops.kv_write(rows, each, kv, 1, bound)
        got = ops.paged_attention(rows, each, kv, 1, bound, masks=masks)
        of_each.append((len(copied) - before[0], len(checked) - before[1]))
        assert (got == want[each is wide]).all()
    assert of_each[1] == of_each[3] == (0, 0)
    assert of_each[0] == (4, 4), "tiles and masks; positions and blocks of two requests"
    assert of_each[2] == (0, 4), "spans of another window are made on the device"


def counted(of: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls.append(arguments)
        return of(*arguments)

    return call


@pytest.mark.parametrize("garbage", [np.nan, np.inf])
def test_what_lies_in_other_slots_is_never_touched(ops: Ops, garbage: float) -> None:
    """Slots past a token hold what an earlier request left."""
    shape = shape_of(1, 2, 32)
    (table,) = shuffled_blocks(1, [128], 16)
    for k, v in KV_CODECS:
        results = []
        for spoil in (False, True):
            kv = new_cache(ops, shape, len(table), 16, k, v)
            if spoil:
                qkv = np.full((128, shape.row_width), garbage, np.float32)
                ops.kv_write(qkv, shape, kv, 1, batch_of([Request(0, 0, 128, table)]))
            parts = [
                Request(9, start, count, table) for start, count in ((0, 37), (37, 1), (38, 9))
            ]
            results.append(np.concatenate([run(ops, shape, kv, [part]) for part in parts]))
        with named(k=k, v=v):
            assert np.isfinite(results[0]).all()
            assert (results[0] == results[1]).all()


def test_sinks_slopes_and_masks(ops: Ops) -> None:
    shown = visibility.shown_at_random(4)
    heads = normal(30, 1, 8)[0]
    masks = visibility.packed(shown & np.tri(visibility.LENGTH, dtype=bool))
    for shape in (shape_of(2, 4, 16), replace(shape_of(4, 2, 24), window=70, softcap=4.0)):
        for terms in (
            visibility.Terms(sinks=heads),
            visibility.Terms(slopes=np.abs(heads) / 50),
            visibility.Terms(masks=masks),
            visibility.Terms(heads, np.abs(heads) / 50, masks),
        ):
            for codecs in (("f32", "f32"), ("bf16", "f32"), ("q8_0", "int8")):
                got = visibility.attend(ops, shape, terms, codecs)
                want = visibility.attend(REFERENCE, shape, terms, codecs)
                # A slope's product with the distance and its sum are rounded too, at 150 * 0.06.
                more = 4 * 10 * 2.0**-24 * np.abs(normal(5, 150, shape.row_width)).max()
                limit = of_attention(shape, normal(5, 150, shape.row_width), codecs) + more
                with named(shape=shape, codecs=codecs):
                    assert np.abs(got - want).max() <= limit
                    assert (visibility.attend(ops, shape, terms, codecs, chunk=29) == got).all()


@pytest.mark.parametrize("case", near.CASES, ids=lambda case: "-".join(case[1]))
def test_what_is_near_is_read_in_bf16(
    ops: Ops, case: tuple[AttentionShape, tuple[KVCodec, KVCodec]]
) -> None:
    shape, codecs = case
    found = near.attended(ops, shape, codecs, 999)
    rows = np.concatenate([normal(i, n, shape.row_width) for i, n in enumerate(near.LENGTHS)])
    error = np.abs(found - near.expected(shape, codecs)).max()
    assert error <= of_attention(shape, rows, codecs)
    for step in (1, 30):
        assert (near.attended(ops, shape, codecs, step) == found).all()


def test_what_is_stored_is_what_the_reference_stores_to_the_last_bit(ops: Ops) -> None:
    shape = shape_of(3, 1, 48)
    (table,) = shuffled_blocks(1, [64], 16)
    for codec in ("f32", "bf16", "fp8", "int8", "q8_0", "q4_0"):
        rows = spoilt_rows(shape, 64)
        rows[~np.isfinite(rows)] = 3.0
        read = []
        for each in (ops, REFERENCE):
            kv = new_cache(each, shape, len(table), 16, codec, codec)
            each.kv_write(rows, shape, kv, 1, batch_of([Request(1, 0, 64, table)]))
            place = kv.spec.place(1)
            read.append(kv.arrays.of(place))
        for part in ("k", "v"):
            got, want = getattr(read[0], part), getattr(read[1], part)
            blocks = np.arange(len(table))[:, None], np.arange(16)[None]
            values = kv_codecs.decode(codec, got.codes, got.scales, 1.0).cpu().numpy()
            with named(codec=codec, part=part):
                assert (values == want.read(blocks).astype(np.float32)).all()
                if want.scales is not None:
                    assert (got.scales.cpu().numpy() == want.scales).all()


def test_blocks_are_copied_whole(ops: Ops) -> None:
    shape = shape_of(2, 1, 16)
    kv = new_cache(ops, shape, 4, 16, "q4_0", "bf16")
    before = Request(1, 0, 16, np.array([0], np.int32))
    run(ops, shape, kv, [before])
    ops.kv_copy(kv, np.array([[0, 3]], np.int32))
    results = [
        run(ops, shape, kv, [Request(1, 16, 5, np.array([block, 1], np.int32))]) for block in (0, 3)
    ]
    assert (results[0] == results[1]).all()
    with pytest.raises(ValueError, match="block 4 is not in"):
        ops.kv_copy(kv, np.array([[0, 4]], np.int32))


def test_a_pool_takes_the_bytes_that_its_spec_counts(ops: Ops) -> None:
    shape = shape_of(3, 1, 48)
    for k, v in KV_CODECS:
        kv = new_cache(ops, shape, 5, 32, k, v)
        assert kv.arrays.pages.nbytes == 5 * kv.spec.block_bytes


def test_a_full_device_is_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only of a full memory the engine says that it is; another fault is not hidden behind it."""
    kv = new_cache(torch_ops(), SHAPES[0], 2, 16, "f32", "f32")
    device = torch.device("cuda", 0)
    for error, kind in (
        (torch.OutOfMemoryError("CUDA out of memory"), MemoryError),
        (RuntimeError("CUDA error: unknown"), RuntimeError),
    ):

        def fails(*shape: object, error: Exception = error, **named: object) -> None:
            raise error

        monkeypatch.setattr(torch, "zeros", fails)
        with pytest.raises(kind, match=str(error)):
            new_pool(kv.spec, device)
    with pytest.raises(MemoryError):
        new_pool(kv.spec, torch.device("cpu"))


def test_products_of_tiles_have_one_shape_whatever_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, right = (torch.from_numpy(normal(seed, 11, 2, 16, 24)) for seed in (1, 2))
    right, shapes, bmm = right.transpose(2, 3), set(), torch.bmm

    def recorded(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        shapes.add((one.shape, other.shape))
        return bmm(one, other)

    monkeypatch.setattr(torch, "bmm", recorded)
    whole = attention.products_of_tiles(left, right, 8)
    for count in (1, 7, 8):
        alone = attention.products_of_tiles(left[:count], right[:count], 8)
        assert torch.equal(alone, whole[:count])
    assert len(shapes) == 1
    assert (whole - left @ right).abs().max() < 1e-5


def test_what_means_nothing_is_refused(ops: Ops) -> None:
    shape = shape_of(2, 1, 16)
    kv = new_cache(ops, shape, 2, 16, "f32", "f32")
    table = np.array([0, 2], np.int32)
    request = Request(1, 0, 20, table)
    with pytest.raises(ValueError, match="block id 2 is not in"):
        ops.kv_write(request.rows(shape), shape, kv, 1, batch_of([request]))
    with pytest.raises(ValueError, match="the cache holds 2 heads of 16, attention has 1"):
        run(ops, shape_of(1, 1, 16), kv, [Request(1, 0, 2, table)])
    with pytest.raises(ValueError, match="block_size 8 is not a power of two"):
        new_cache(ops, shape, 2, 8, "f32", "f32")
    with pytest.raises(ValueError, match="k_codec 'q3' is unknown"):
        new_cache(ops, shape, 2, 16, "q3", "f32")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"sinks must be float32\[2\]"):
        sinks = np.zeros(3, np.float32)
        fits = Request(1, 0, 2, table)
        ops.paged_attention(fits.rows(shape), shape, kv, 1, batch_of([fits]), sinks=sinks)


def test_empty_requests_and_empty_batches(ops: Ops) -> None:
    shape = shape_of(1, 1, 16)
    kv = new_cache(ops, shape, 2, 16, "f32", "f32")
    requests = [Request(1, 0, 0, np.zeros(1, np.int32)), Request(2, 0, 3, np.ones(1, np.int32))]
    assert run(ops, shape, kv, requests).shape == (3, 16)
    assert run(ops, shape, kv, requests[:1]).shape == (0, 16)
