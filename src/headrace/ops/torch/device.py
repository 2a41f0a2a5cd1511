"""Devices: from what a setting says to the one that computes, and the memory it has."""

from __future__ import annotations

from collections.abc import Callable

import torch

from headrace.errors import ConfigError
from headrace.ops.device import DeviceMemory, Fault


def find_device(name: str) -> torch.device:
    """The device a setting names: "cpu", "cuda", "cuda:1", or "auto" for the first CUDA device
    where there is one, otherwise the CPU.

    Raises ConfigError for a device that is not there. Names are checked by `choose_backend`.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError(f"--device is {name}, and {_missing()}. Use --device cpu")
    index, count = int(number or 0), torch.cuda.device_count()
    if index >= count:
        found = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise ConfigError(f"--device is {name}; this machine has {found}: choose one of these")
    return torch.device("cuda", index)


def _missing() -> str:
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"the installed torch ({torch.__version__}) is built for processors alone: install one "
            "for CUDA (pytorch.org/get-started)"
        )
    return "torch finds no CUDA device: see that nvidia-smi lists one in this environment"


def memory_of(device: torch.device) -> DeviceMemory | None:
    """Memory of a device of its own; None where it computes in this machine's."""
    if device.type == "cpu":
        return None
    return DeviceMemory(*torch.cuda.mem_get_info(device))


def level_of(device: torch.device) -> str:
    """The level that measurements of the device are kept under, as telemetry/machine.py has it;
    devices of one name share them."""
    return "cpu" if device.type == "cpu" else f"{device.type} {name_of(device)}"


def name_of(device: torch.device) -> str:
    """A name of a device for people: what it says of itself."""
    if device.type == "cpu":
        return "cpu"
    return str(torch.cuda.get_device_name(device))


_OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "can't allocate memory")
"""In what torch and the libraries it calls say where memory is short."""


def fault_of(
    error: Exception, device: torch.device, answers: Callable[[torch.device], bool] | None = None
) -> Fault | None:
    """What an error of an operation says of the device.

    Errors of CUDA that end its context are told from others, as of a kernel that could not be
    launched, by asking the device once more: after those every call fails. answers: asks it; None
    for `_answers`.
    """
    text = str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return "memory"
    if not isinstance(error, RuntimeError):
        return None
    if any(words in text for words in _OUT_OF_MEMORY):
        return "memory"
    if device.type == "cpu" and answers is None:
        return None
    return None if (answers or _answers)(device) else "lost"


def _answers(device: torch.device) -> bool:
    """Whether the device computes anything still."""
    try:
        torch.cuda.synchronize(device)
        return bool(torch.ones(1, device=device).item() == 1)
    except RuntimeError as error:
        # Where another process took the rest of the memory it is there all the same.
        return any(words in str(error) for words in _OUT_OF_MEMORY)
