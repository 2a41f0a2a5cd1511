"""Runs that are repeated give the bits of runs made anew, and what cannot be repeated is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.cpu import CpuOps, _native
from headrace.ops.cpu.recording import Arena
from headrace.ops.interface import AttentionShape
from headrace.ops.kv import KVCacheSpec, RaggedBatch
from headrace.ops.operands import Norm
from tests.ops.cpu.cases import matrix, normal

F32 = npt.NDArray[np.float32]
Run = Callable[[RaggedBatch, Sequence[F32]], Sequence[F32]]
WIDTH = 32


def batch(*token_ids: int, positions: Sequence[int] | None = None) -> RaggedBatch:
    """One request with these tokens."""
    count = len(token_ids)
    at = range(count) if positions is None else positions
    return RaggedBatch(
        np.array(token_ids, np.int32),
        np.array(at, np.int32),
        np.array([0, count], np.int32),
        (np.array([[1, 2]], np.int32),),
        np.array([count - 1], np.int32),
    )


def ragged(*requests: Sequence[int]) -> RaggedBatch:
    """Requests with these tokens, each with a block of its own, and logits of every token."""
    ids = [token for request in requests for token in request]
    return RaggedBatch(
        np.array(ids, np.int32),
        np.array([at for request in requests for at in range(len(request))], np.int32),
        np.cumsum([0, *map(len, requests)]).astype(np.int32),
        (np.arange(1, len(requests) + 1, dtype=np.int32).reshape(-1, 1),),
        np.arange(len(ids), dtype=np.int32),
    )


class Machine:
    """A backend and weights of a run over a KV cache."""

    def __init__(self) -> None:
        self.ops = CpuOps(threads=2)
        self.table = self.ops.embedding_weight(matrix(1, 16, WIDTH))
        self.weight = self.ops.linear_weight([matrix(2, WIDTH, WIDTH)])
        self.qkv = self.ops.linear_weight([matrix(4, 4 * 16, WIDTH)])
        self.norm = Norm(np.ones(WIDTH, np.float32), 1e-6)
        self.kv = self.ops.kv_cache(KVCacheSpec.uniform(1, 1, 16, 16, 4, "f32", "f32"))

    def run(self, of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        """Some of each kind: rows looked up, joined, multiplied, normed, taken."""
        x = self.ops.embedding(self.table, of.token_ids)
        both = self.ops.stacked([x, inputs[0]])
        y = self.ops.linear(both, self.weight, norm=self.norm, residual=both)
        wide = self.ops.concat([y, self.ops.columns(both, 4, 12)])
        total = self.ops.added(y, y)
        return [self.ops.take_rows(wide, of.query_start[1:] - np.int32(1)), total]


def test_a_repeated_run_gives_the_bits_of_one_made_anew() -> None:
    machine = Machine()
    first, recording = machine.ops.record_run(machine.run, batch(1, 2), [normal(3, 2, WIDTH)])
    assert recording is not None
    for mine, expected in zip(first, machine.run(batch(1, 2), [normal(3, 2, WIDTH)]), strict=True):
        assert np.array_equal(mine, expected)
    for seed, ids in enumerate([(3, 4), (5, 5), (0, 15)], 10):
        values = normal(seed, 2, WIDTH)
        repeated = recording.repeat(batch(*ids), [values])
        for mine, expected in zip(repeated, machine.run(batch(*ids), [values]), strict=True):
            assert np.array_equal(mine, expected)


def test_a_run_of_logit_rows_alone_is_repeated_for_other_requests() -> None:
    """Attention has query_start of each batch; what takes rows reads them where they lie."""
    machine = Machine()
    shape = AttentionShape(2, 1, 16, scale=0.25)

    def run(of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        bound = machine.ops.bind(of, machine.kv)
        qkv = machine.ops.linear(machine.ops.embedding(machine.table, of.token_ids), machine.qkv)
        machine.ops.kv_write(qkv, shape, machine.kv, 0, bound)
        y = machine.ops.paged_attention(qkv, shape, machine.kv, 0, bound)
        return [machine.ops.take_rows(y, of.logit_rows)]

    _, recording = machine.ops.record_run(run, ragged((1, 2, 3), (4,)))
    assert recording is not None and not recording.depends_on_starts
    for others in (ragged((4,), (3, 2, 1)), ragged((7, 8, 9, 1)), ragged((1,), (2, 5), (3,))):
        (again,) = recording.repeat(others, [])
        assert np.array_equal(again, run(others, [])[0])


def test_a_run_of_rows_made_of_starts_depends_on_them() -> None:
    machine = Machine()
    _, recording = machine.ops.record_run(machine.run, batch(1, 2), [normal(3, 2, WIDTH)])
    assert recording is not None and recording.depends_on_starts


def test_what_is_handed_in_is_not_kept_in_place_of_a_copy() -> None:
    machine = Machine()
    values, of = normal(3, 2, WIDTH), batch(1, 2)
    expected = [each.copy() for each in machine.run(of, [values])]
    _, recording = machine.ops.record_run(machine.run, of, [values])
    assert recording is not None
    of.token_ids[:], values[:] = 7, 0
    for mine, own in zip(
        recording.repeat(batch(1, 2), [normal(3, 2, WIDTH)]), expected, strict=True
    ):
        assert np.array_equal(mine, own)


def test_memory_is_used_again_while_a_run_goes_on_but_not_of_what_is_read() -> None:
    machine = Machine()
    ops = machine.ops

    def run(of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        x = ops.embedding(machine.table, of.token_ids)
        for _ in range(20):
            x = ops.added(x, inputs[0])
        part = x[:1]
        del x
        return [ops.added(part, part)]

    values = normal(1, 2, WIDTH)
    _, recording = ops.record_run(run, batch(1, 2), [values])
    assert recording is not None and ops._arena is not None
    assert len(ops._arena._storages) <= 4
    again = recording.repeat(batch(3, 2), [values])
    assert np.array_equal(again[0], run(batch(3, 2), [values])[0])


def test_slices_keep_memory_of_an_arena() -> None:
    arena = Arena()
    arena.begin()
    part = arena.empty((4, 4), np.float32)[1:2]
    part[:] = 5
    other = arena.empty((4, 4), np.float32)
    other[:] = 7
    assert (part == 5).all() and arena.owns(part) and not arena.owns(np.empty(3))
    assert part.ctypes.data % 16 == 0 and other.ctypes.data % 64 == 0


def test_an_arena_is_no_larger_than_the_widest_run_needs() -> None:
    arena = Arena()
    for rows in range(1, 65):
        arena.begin()
        held = [arena.empty((rows, width), np.float32) for width in (64, 64, 50_000)]
        assert all(each.ctypes.data % 64 == 0 for each in held)
        del held
    assert arena.capacity_bytes < 64 * 4 * (64 + 64 + 50_000) + 4 * 4096


def _makes_values(machine: Machine) -> Run:
    def run(of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        x = machine.ops.embedding(machine.table, of.token_ids)
        factors = 1 + of.positions.astype(np.float32)
        machine.ops.scale_rows(x, factors, columns=WIDTH)
        return [machine.ops.added(x, x)]

    return run


def _makes_ids(machine: Machine) -> Run:
    def run(of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        return [machine.ops.embedding(machine.table, of.token_ids[::-1].copy())]

    return run


def _makes_the_result(machine: Machine) -> Run:
    def run(of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        return [machine.ops.embedding(machine.table, of.token_ids) * np.float32(2)]

    return run


def _makes_a_batch(machine: Machine) -> Run:
    def run(of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        machine.ops.bind(batch(*of.token_ids.tolist()), machine.kv)
        return [machine.ops.embedding(machine.table, of.token_ids)]

    return run


def _samples(machine: Machine) -> Run:
    def run(of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        x = machine.ops.embedding(machine.table, of.token_ids)
        machine.ops.top_logprobs(x, np.zeros(len(x), np.int32), 1, WIDTH)
        return [x]

    return run


@pytest.mark.parametrize(
    "of", [_makes_values, _makes_ids, _makes_the_result, _makes_a_batch, _samples]
)
def test_what_depends_on_more_is_computed_anew(of: Callable[[Machine], Run]) -> None:
    machine = Machine()
    run = of(machine)
    outputs, recording = machine.ops.record_run(run, batch(1, 2))
    assert recording is None
    assert np.array_equal(outputs[0], run(batch(1, 2), [])[0])
    # The backend is as it was.
    assert isinstance(machine.ops._native, _native.Backend)
    assert machine.ops.embedding(machine.table, np.array([1], np.int32)).base is None


def test_a_run_that_raises_leaves_the_backend_as_it_was() -> None:
    machine = Machine()
    with pytest.raises(ValueError, match="token id 99 is not in"):
        machine.ops.record_run(machine.run, batch(1, 99), [normal(3, 2, WIDTH)])
    assert isinstance(machine.ops._native, _native.Backend)
    machine.run(batch(1, 2), [normal(3, 2, WIDTH)])


def test_ids_and_batches_are_checked_in_each_repetition() -> None:
    machine = Machine()
    _, recording = machine.ops.record_run(machine.run, batch(1, 2), [normal(3, 2, WIDTH)])
    assert recording is not None
    with pytest.raises(ValueError, match=r"token id 16 is not in \[0, 16\)"):
        recording.repeat(batch(1, 16), [normal(3, 2, WIDTH)])
    with pytest.raises(
        ValueError, match=r"a run of \(3, 1, 1\) .* does not repeat one of \(2, 1, 1\)"
    ):
        recording.repeat(batch(1, 2, 3), [normal(3, 2, WIDTH)])


def test_a_batch_is_refilled_with_one_of_its_size_alone() -> None:
    machine = Machine()
    small, large = batch(1, 2), batch(1, 2, 3)
    bound = machine.ops._bound(small, machine.kv)
    bound.refill(small.positions + 3, small.query_start, small.block_tables)
    two = ragged((1,), (2,))
    bound.refill(two.positions, two.query_start, two.block_tables)
    with pytest.raises(ValueError, match="a batch of 3 tokens in the place of 2"):
        bound.refill(large.positions, large.query_start, large.block_tables)


def test_other_threads_are_not_noted() -> None:
    machine = Machine()
    ops = machine.ops

    def run(of: RaggedBatch, inputs: Sequence[F32]) -> list[F32]:
        other = threading.Thread(target=lambda: ops.norm(normal(1, 1, WIDTH), machine.norm))
        other.start()
        other.join(30)
        return [ops.embedding(machine.table, of.token_ids)]

    _, recording = ops.record_run(run, batch(1, 2))
    assert recording is not None and len(recording.tape) == 1


def test_rows_are_placed_added_and_spread() -> None:
    native = CpuOps(threads=2)._native
    x, y = normal(1, 300, 7), normal(2, 300, 7)
    out = np.zeros((310, 20), np.float32)
    native.place(x, 2, out, 5, 11, 4)
    expected = np.zeros_like(out)
    expected[5:305, 11:15] = x[:, 2:6]
    assert np.array_equal(out, expected)
    total = np.empty_like(x)
    native.add(x, y, total)
    assert np.array_equal(total, x + y)
    columns = np.array([3, 0, 19, 5, 7, 1, 2])
    wide = np.zeros((300, 20), np.float32)
    native.spread(x, columns, wide)
    assert np.array_equal(wide[:, columns], x)
    assert np.isneginf(np.delete(wide, columns, axis=1)).all()


def test_places_out_of_bounds_are_refused() -> None:
    native = CpuOps(threads=1)._native
    x, out = normal(1, 3, 4), np.zeros((5, 6), np.float32)
    for arguments, words in (
        ((x, 2, out, 0, 0, 3), "columns of x"),
        ((x, 0, out, 0, 3, 4), "columns of y"),
        ((x, 0, out, 3, 0, 4), "rows of y"),
        ((x, 0, out, -1, 0, 4), "rows of y"),
        ((x, 0, out, 0, 0, 5), "width 5"),
    ):
        with pytest.raises(ValueError, match=words):
            native.place(*arguments)
    with pytest.raises(ValueError, match=r"column 6 is not in \[0, 6\)"):
        native.spread(x, np.array([0, 1, 2, 6]), np.zeros((3, 6), np.float32))
    with pytest.raises(ValueError, match="y: dimension 0 is 5, must be 3"):
        native.add(x, out[:, :4].copy(), x)
