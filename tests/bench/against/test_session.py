"""The limits that a comparison reads are those of the kernels that compute, or none; who runs while
another is measured."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, cast

from headrace.bench.against.cases import AgainstCase
from headrace.bench.against.process import started
from headrace.bench.against.session import Environment, apart, limits_reader
from headrace.bench.machine import Probe
from tests.bench.against.test_process import WAITS, comes_to

LABELS = {
    "backend": "cpu", "cpu_level": "avx2", "threads": "3", "weight_codec": "Q8_0",
    "cache_dtype": "bf16",
}  # fmt: skip
RATES = {"f32": 3.0, "bf16": 6.0, "int8": 9.0}


class FixedProbe:
    """A probe of a machine that reads 7 bytes a second and multiplies as RATES has it."""

    def __init__(self, level: str, num_threads: int) -> None:
        self.level = level
        self.num_threads = num_threads

    def read_bandwidth(self, footprint_bytes: int) -> float:
        return 7.0

    def peak_rate(self, kind: str) -> float | None:
        return RATES.get(kind)


def around(asked: list[tuple[str, int]]) -> Environment:
    def probe(level: str, threads: int) -> Probe:
        asked.append((level, threads))
        return FixedProbe(level, threads)

    return Environment({}, probe, lambda: 0.0, lambda: datetime(2026, 1, 1, tzinfo=UTC), print)


def test_limits_are_of_the_level_and_threads_that_compute() -> None:
    asked: list[tuple[str, int]] = []
    limits = limits_reader(LABELS, around(asked))()
    assert limits is not None
    assert limits == (7.0, 9.0, "int8", 6.0)
    assert asked == [("avx2", 3)]


def test_the_limit_of_attention_is_that_of_its_k_and_v() -> None:
    limits = limits_reader(LABELS | {"cache_dtype": "f32"}, around([]))()
    assert limits is not None and limits.attention_ops_per_s == 3.0


def test_whoever_is_measured_runs_alone() -> None:
    case = AgainstCase("a", 1, 100, 1, "prefill")
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                started(WAITS, is_ready=lambda: True, timeout_s=20, environ=os.environ)
            )
            for name in ("headrace", "peer")
        }

        def look(*stopped: str) -> None:
            for name, server in servers.items():
                assert comes_to(server.group, stopped=name in stopped), name

        ours, peer, limits = apart(
            lambda _case: cast("Any", look("peer")),
            lambda _case: cast("Any", look("headrace")),
            lambda: cast("Any", look("headrace", "peer")),
            servers,
        )
        for _ in range(2):
            ours(case)
            peer(case)
            limits()
        look()


def test_a_server_on_a_device_has_none() -> None:
    asked: list[tuple[str, int]] = []
    on_device = LABELS | {"backend": "torch", "cpu_level": "cuda:0"}
    assert limits_reader(on_device, around(asked))() is None
    assert not asked
