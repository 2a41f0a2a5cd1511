"""Memory of the KV cache is there before it is written, as far as it was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from headrace.ops.cpu import CpuOps
from headrace.ops.kv import KVCacheArrays
from tests.ops.cpu.attention_cases import new_cache, run
from tests.ops.cpu.cases import Request, shape_of
from tests.waiting import wait_until

SHAPE = shape_of(8, 8, 128)
BLOCKS = 512


def cache_of(ops: CpuOps) -> KVCacheArrays:
    """Large enough for huge pages."""
    return new_cache(ops, SHAPE, BLOCKS, 64, "f32", "f32")


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_taken_of_the_blocks_that_were_asked_for_and_of_no_others() -> None:
    ops = CpuOps(threads=1)
    kv = cache_of(ops)
    before = resident_bytes()
    ops.kv_populate(kv, BLOCKS // 4, wait=True)
    taken = resident_bytes() - before
    asked = kv.arrays.nbytes // 4
    assert asked >= 32 << 20
    assert 0.8 * asked < taken < 1.2 * asked + (4 << 20)
    assert kv.arrays.populated == BLOCKS // 4


def test_a_thread_populates_beside_and_goes_on_when_more_is_asked_for() -> None:
    ops = CpuOps(threads=1)
    kv = cache_of(ops)
    for asked, least in ((10, 10), (5, 10), (200, 200), (BLOCKS + 100, BLOCKS)):
        ops.kv_populate(kv, asked)
        wait_until(
            lambda least=least: kv.arrays.populated >= least,  # type: ignore[misc]
            f"{least} blocks populated",
        )
    assert kv.arrays.populated == BLOCKS


def test_what_is_written_meanwhile_stays() -> None:
    ops = CpuOps(threads=1)
    length = 100
    requests = [
        Request(seed, 0, length, np.arange(5, dtype=np.int32) + at)
        for seed, at in enumerate((0, 100, BLOCKS - 5))
    ]
    expected = run(ops, SHAPE, cache_of(ops), requests)
    for _ in range(2):
        kv = cache_of(ops)
        ops.kv_populate(kv, BLOCKS)
        assert np.array_equal(run(ops, SHAPE, kv, requests), expected)
        more = [Request(9, length, 1, requests[1].blocks)]
        ops.kv_populate(kv, BLOCKS, wait=True)
        found = run(ops, SHAPE, kv, more)
        ops.kv_populate(kv, BLOCKS, wait=True)
        assert np.array_equal(run(ops, SHAPE, kv, more), found)


FORKED = """
import os
from headrace.ops.cpu import CpuOps
from tests.ops.cpu.test_kv_populate import cache_of

ops = CpuOps(threads=1)
kv = cache_of(ops)
ops.kv_populate(kv, 40)
child = os.fork()
if child == 0:
    ops.kv_populate(kv, 400)
    ops.kv_populate(kv, 100, wait=True)
    del kv
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_has_no_thread_and_ends() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=50)
