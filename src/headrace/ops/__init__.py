"""Backends: what a model is computed with. `make_ops` gives one by name.

A backend is imported only when asked for; importing this package loads none of them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ConfigError
from headrace.ops.interface import Ops

BACKENDS = ("cpu", "reference", "torch")

_DRIVERS = ("dev/nvidiactl", "dev/kfd", "dev/dxg")
"""What the kernel has where there may be a device that torch calls cuda: of NVIDIA's driver, of
AMD's, of WSL. Without any of them importing torch, which takes a second, would find none."""


class BackendChoice(NamedTuple):
    """A backend and its device, neither of them "auto"."""

    backend: str
    device: str


def choose_backend(backend: str, device: str, root: Path = Path("/")) -> BackendChoice:
    """The backend and the device that settings mean.

    "auto" for both: torch on the first CUDA device where there is one and torch is installed, the
    C++ kernels otherwise; torch alone takes the device that is named. root: where dev/ lies.
    Raises ConfigError where they do not go together, torch is missing, or the device is.
    """
    if backend not in ("auto", *BACKENDS):
        choices = ", ".join(("auto", *BACKENDS))
        raise ConfigError(f"backend {backend!r} is unknown; choose one of {choices}")
    on_device = device.startswith("cuda")
    if backend in ("cpu", "reference"):
        if on_device:
            raise ConfigError(
                f"--device is {device}, and --backend {backend} computes on processors. Use "
                "--backend torch, or --device cpu"
            )
        return BackendChoice(backend, "cpu")
    if backend == "auto" and not on_device and (device == "cpu" or not _may_have_device(root)):
        return BackendChoice("cpu", "cpu")
    found = _find_device(device)
    if backend == "auto" and found == "cpu":
        return BackendChoice("cpu", "cpu")
    return BackendChoice("torch", found)


def make_ops(
    backend: str,
    *,
    device: str = "cpu",
    cpu_level: str = "auto",
    threads: int | None = None,
    expert_cache_bytes: int | None = None,
) -> Ops:
    """A backend: "cpu" (C++ kernels of a level, a thread pool), "torch" (tensors of a device) or
    "reference" (slow NumPy).

    device: torch's, as `choose_backend` gives it. cpu_level, threads and expert_cache_bytes are the
    cpu backend's: threads None means the CPUs this process may use, expert_cache_bytes None that
    all experts are packed at load; torch on a processor takes threads too. The reference has none
    of them. Every backend has attributes `level: str` and `num_threads: int`.
    Raises ConfigError for an unknown backend, and where torch or its device is missing.
    """
    if backend == "cpu":
        from headrace.ops.cpu import CpuOps

        return CpuOps(cpu_level, threads, expert_cache_bytes)
    if backend == "reference":
        from headrace.ops.reference import ReferenceOps

        return ReferenceOps()
    if backend == "torch":
        _check_torch(device)
        from headrace.ops.torch import TorchOps

        return TorchOps(device, threads)
    raise ConfigError(f"backend {backend!r} is unknown; choose one of {', '.join(BACKENDS)}")


def _may_have_device(root: Path) -> bool:
    return find_spec("torch") is not None and any((root / name).exists() for name in _DRIVERS)


def _find_device(device: str) -> str:
    _check_torch(device)
    from headrace.ops.torch.device import find_device

    return str(find_device(device))


def _check_torch(device: str) -> None:
    """Raise ConfigError where torch is not installed."""
    if find_spec("torch") is None:
        raise ConfigError(
            f"--device {device} with the backend torch needs PyTorch, which is not installed: "
            "pip install 'headrace[torch]', or use --device cpu --backend cpu"
        )
