"""Backends: what a model is computed with. `make_ops` gives one by name.

A backend is imported only when asked for; importing this package loads none of them.
"""

from __future__ import annotations

import logging
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ConfigError
from headrace.ops.device import DeviceMemory
from headrace.ops.interface import Ops

logger = logging.getLogger(__name__)

BACKENDS = ("cpu", "reference", "torch")

_DRIVERS = ("dev/nvidiactl", "dev/kfd", "dev/dxg")
"""What the kernel has where there may be a device that torch calls cuda: of NVIDIA's driver, of
AMD's, of WSL. Looked for in place of torch, whose import takes a second."""

_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,4})?")


class BackendChoice(NamedTuple):
    """A backend and its device, neither of them "auto"."""

    backend: str
    device: str


def choose_backend(backend: str, device: str, root: Path = Path("/")) -> BackendChoice:
    """The backend and the device that settings mean.

    "auto" for both means the C++ kernels, and a note in the log where a device may be: torch has
    not run on one yet (docs/gpu.md), so one has to be asked for. With the backend torch the device
    "auto" is the first of CUDA where there is one. root: where dev/ lies. Raises ConfigError where
    they are unknown or do not go together, torch is missing, or the device is.
    """
    if _DEVICE.fullmatch(device) is None:
        raise ConfigError(f"--device is {device!r}; choose auto, cpu, cuda or cuda:N")
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
    if backend == "auto" and not on_device:
        if device == "auto" and _may_have_device(root):
            # A warning, since the process of an engine logs no less.
            logger.warning(
                "computing on the CPU; PyTorch and a device's driver are here: --device cuda "
                "computes on the first CUDA device, which has not been tested on hardware"
            )
        return BackendChoice("cpu", "cpu")
    return BackendChoice("torch", _find_device(device))


def device_memory(choice: BackendChoice) -> DeviceMemory | None:
    """Of the device that computes, now; None where it is this machine's own memory."""
    if choice.backend != "torch":
        return None
    from headrace.ops.torch.device import find_device, memory_of

    return memory_of(find_device(choice.device))


def make_ops(
    backend: str,
    *,
    device: str = "auto",
    cpu_level: str = "auto",
    threads: int | None = None,
    expert_cache_bytes: int | None = None,
    expert_layers: int = 0,
    reproducible: bool = True,
) -> Ops:
    """A backend: "cpu" (C++ kernels of a level, a thread pool), "torch" (tensors of a device),
    "reference" (slow NumPy), or "auto": as `choose_backend` chooses it, which says what device is.

    cpu_level, threads and expert_cache_bytes are the cpu backend's: threads None means the CPUs
    this process may use, expert_cache_bytes None that all experts are packed at load; torch on a
    processor takes threads too. The reference has none of them. expert_layers: the layers, from the
    first on, whose experts the cpu backend computes beside torch (ops/placement.py). reproducible:
    whether torch gives a row the same result in every batch, as the others do always. Every backend
    has attributes `level: str` and `num_threads: int`.
    Raises ConfigError as `choose_backend` does.
    """
    choice = choose_backend(backend, device)
    if choice.backend == "cpu":
        from headrace.ops.cpu import CpuOps

        return CpuOps(cpu_level, threads, expert_cache_bytes)
    if choice.backend == "reference":
        from headrace.ops.reference import ReferenceOps

        return ReferenceOps()
    from headrace.ops.torch import TorchOps

    ops = TorchOps(choice.device, threads, reproducible=reproducible)
    if not expert_layers:
        return ops
    from headrace.ops.cpu import CpuOps
    from headrace.ops.placement import with_experts

    return with_experts(ops, CpuOps(cpu_level, threads, expert_cache_bytes), expert_layers)


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
