"""Backends: what a model is computed with. `make_ops` gives one by name.

A backend is imported only when asked for; importing this package loads none of them.
"""

from __future__ import annotations

from headrace.errors import ConfigError
from headrace.ops.interface import Ops

BACKENDS = ("cpu", "reference")


def make_ops(
    backend: str,
    *,
    cpu_level: str = "auto",
    threads: int | None = None,
    expert_cache_bytes: int | None = None,
) -> Ops:
    """A backend: "cpu" (C++ kernels of a level, a thread pool) or "reference" (slow NumPy).

    cpu_level, threads and expert_cache_bytes are the cpu backend's: threads None means the CPUs
    this process may use, expert_cache_bytes None that all experts are packed at load. The
    reference has none of them. Every backend has attributes `level: str` and `num_threads: int`.
    Raises ConfigError for an unknown backend.
    """
    if backend == "cpu":
        from headrace.ops.cpu import CpuOps

        return CpuOps(cpu_level, threads, expert_cache_bytes)
    if backend == "reference":
        from headrace.ops.reference import ReferenceOps

        return ReferenceOps()
    raise ConfigError(f"backend {backend!r} is unknown; choose one of {', '.join(BACKENDS)}")
