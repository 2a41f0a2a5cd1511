"""The thread pool and memory: denormals, idleness, sharing between callers, attention's scratch."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps, _native
from tests.ops.cpu.cases import LEVELS, matrix, normal


def tiny_number() -> np.float32:
    return np.float32(1e-40)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_denormals_are_zero_in_every_thread(threads: int) -> None:
    assert _native.Backend("auto", threads).flushing_threads() == threads


@pytest.mark.parametrize("level", LEVELS)
def test_denormals_are_zero_in_kernels_only(level: str) -> None:
    ops = CpuOps(level, 2)
    weight = ops.linear_weight([matrix(1, 640, 64)])
    denormal = np.full((200, 64), tiny_number())
    assert denormal.all()
    assert (ops.linear(denormal * np.float32(1), weight) == 0).all()
    # The calling thread has its own mode back: 1e-40 times 1 is still there.
    assert np.float32(tiny_number() * np.float32(1)) > 0
    assert (np.full(64, tiny_number()) * np.float32(2) > 0).all()


def test_an_idle_pool_uses_no_cpu() -> None:
    ops = CpuOps(threads=4)
    weight = ops.linear_weight([matrix(1, 4096, 256)])
    ops.linear(normal(1, 8, 256), weight)
    before = time.process_time()
    time.sleep(0.5)
    # Three threads that spun would have used 1.5 s.
    assert time.process_time() - before < 0.1


def test_a_sleeping_pool_wakes() -> None:
    ops = CpuOps(threads=3)
    weight = ops.linear_weight([matrix(1, 512, 256)])
    x = normal(1, 40, 256)
    expected = ops.linear(x, weight)
    for pause in (0, 1e-5, 1e-4, 1e-3, 0.02):
        for _ in range(20):
            time.sleep(pause)
            assert (ops.linear(x, weight) == expected).all()


def test_callers_from_several_threads_wait_for_each_other() -> None:
    ops = CpuOps(threads=2)
    weight = ops.linear_weight([matrix(1, 512, 256, "Q8_0")])
    inputs = [normal(seed, 33, 256) for seed in range(4)]
    expected = [ops.linear(x, weight) for x in inputs]
    wrong: list[int] = []

    def call(index: int) -> None:
        for _ in range(50):
            if not (ops.linear(inputs[index], weight) == expected[index]).all():
                wrong.append(index)

    callers = [threading.Thread(target=call, args=(index,)) for index in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


FORK = """
import os, sys, time
from headrace.ops.cpu import CpuOps
from tests.ops.cpu.cases import matrix, normal

tensor, x = matrix(1, 512, 256), normal(1, 40, 256)
ops, alone = CpuOps(threads=3), CpuOps(threads=1)
weight = ops.linear_weight([tensor])
expected = ops.linear(x, weight)
time.sleep({pause})
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for call in (lambda: ops.linear(x, weight), lambda: ops.linear_weight([tensor])):
    try:
        call()
    except RuntimeError as error:
        assert "fork" in str(error), error
    else:
        raise AssertionError("a pool without threads computed")
assert (CpuOps(threads=2).linear(x, weight) == expected).all()
assert (alone.linear(x, weight) == expected).all()
"""


@pytest.mark.process
@pytest.mark.parametrize("pause", [0, 0.02])
def test_a_forked_child_is_told_that_threads_do_not_come_along(pause: float) -> None:
    """It neither hangs nor crashes, at its end neither, whether threads spun or slept."""
    done = subprocess.run(
        [sys.executable, "-c", FORK.format(pause=pause)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_pools_and_weights_come_and_go() -> None:
    x = normal(1, 5, 64)
    expected = None
    for _ in range(20):
        ops = CpuOps(threads=3)
        got = ops.linear(x, ops.linear_weight([matrix(1, 64, 64)]))
        expected = got if expected is None else expected
        assert (got == expected).all()
        del ops


MEMORY = """
import resource
import numpy as np
from headrace.ops.cpu import CpuOps
from headrace.ops.kv import AttentionShape, KVCacheSpec, RaggedBatch

N, shape = {tokens}, AttentionShape(1, 1, 16, 0.25)
ops = CpuOps(threads=2)
kv = ops.kv_cache(KVCacheSpec.uniform(1, 1, 16, 64, N // 64, "f32", "f32"))
qkv = np.random.default_rng(0).standard_normal((N, 48)).astype(np.float32)
batch = RaggedBatch(
    np.zeros(N, np.int32), np.arange(N, dtype=np.int32), np.array([0, N], np.int32),
    (np.arange(N // 64, dtype=np.int32)[None],), np.zeros(1, np.int32),
)
ops.kv_write(qkv, shape, kv, 0, batch)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = ops.paged_attention(qkv, shape, kv, 0, batch)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert np.isfinite(out).all()
print((after - before) * 1024 - out.nbytes)
"""


@pytest.mark.process
def test_attention_needs_memory_for_its_tokens_only() -> None:
    """A prefill of 32,768 tokens: all its scores would be 4 GiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY.format(tokens=32768)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert int(done.stdout) < 8 << 20


@pytest.mark.process
def test_freed_weights_return_their_memory() -> None:
    code = """
import resource
from headrace.ops.cpu import CpuOps
from tests.ops.cpu.cases import matrix
ops = CpuOps(threads=2)
tensor = matrix(1, 8192, 1024)
peaks = []
for _ in range(6):
    weight = ops.linear_weight([tensor])
    assert weight.nbytes == 8192 * 1024 * 4
    del weight
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
print(peaks[-1] - peaks[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) < 16 << 20


def test_threads_the_system_does_not_give_are_an_error_and_no_crash() -> None:
    code = (
        "import resource\n"
        "from headrace.errors import ConfigError\n"
        "from headrace.ops.cpu import CpuOps\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "try:\n    CpuOps('portable', 1024)\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "threads is 1024" in done.stdout
    assert "ask for fewer" in done.stdout
