"""Memory of results: used again once nobody holds them, and never before."""

from __future__ import annotations

import threading

import numpy as np

from headrace.ops.cpu.results import LEAST_BYTES, LINE_BYTES, Results

SHAPE = (8, LEAST_BYTES // 32)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_once_nobody_holds_it() -> None:
    results = Results()
    first = results.empty(SHAPE)
    at = address(first)
    assert first.shape == SHAPE
    assert first.dtype == np.float32
    assert first.flags.c_contiguous
    assert at % LINE_BYTES == 0
    del first
    assert address(results.empty(SHAPE)) == at
    assert results.kept_bytes == 8 * SHAPE[1] * 4 + LINE_BYTES


def test_what_is_held_stays_as_it_is() -> None:
    results = Results()
    first = results.empty(SHAPE)
    first[:] = 1
    part = first[2:3].reshape(-1)[::2].T
    del first
    second = results.empty(SHAPE)
    second[:] = 2
    assert (part == 1).all()
    at = address(second)
    del part
    third = results.empty(SHAPE)
    assert address(third) != at


def test_a_block_serves_a_smaller_result_and_the_smallest_that_does_is_taken() -> None:
    results = Results()
    wide = results.empty((2 * SHAPE[0], SHAPE[1]))
    narrow = results.empty(SHAPE)
    at_wide, at_narrow = address(wide), address(narrow)
    del wide, narrow
    kept = results.kept_bytes
    first, second = results.empty(SHAPE), results.empty(SHAPE)
    assert [address(first), address(second)] == [at_narrow, at_wide]
    assert results.kept_bytes == kept


def test_small_results_are_not_kept() -> None:
    results = Results()
    assert results.empty((1, 1024)).shape == (1, 1024)
    assert results.empty((0, 1024)).shape == (0, 1024)
    assert results.kept_bytes == 0


def test_no_more_is_kept_than_may_be() -> None:
    size = 4 * SHAPE[0] * SHAPE[1] + LINE_BYTES
    results = Results(most_bytes=2 * size)
    held = [results.empty(SHAPE) for _ in range(3)]
    assert len({address(one) for one in held}) == 3
    assert results.kept_bytes == 2 * size
    del held
    wide = results.empty((2 * SHAPE[0] - 1, SHAPE[1]))
    assert wide.size == (2 * SHAPE[0] - 1) * SHAPE[1]
    assert results.kept_bytes == wide.nbytes + LINE_BYTES <= 2 * size


def test_threads_that_ask_at_once_get_different_memory() -> None:
    results = Results()
    shared: list[np.ndarray] = []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        for _ in range(50):
            mine = results.empty(SHAPE)
            mine[0, :8] = threading.get_ident() % 1000003
            if not (mine[0, :8] == np.float32(threading.get_ident() % 1000003)).all():
                shared.append(mine)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared == []
    assert results.kept_bytes <= 4 * (4 * SHAPE[0] * SHAPE[1] + LINE_BYTES)
