"""The CPU backend: C++ kernels with run-time dispatch and a thread pool."""

from headrace.ops.cpu.backend import CpuOps

__all__ = ["CpuOps"]
