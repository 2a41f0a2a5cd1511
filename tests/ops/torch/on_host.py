"""An `Ops` of NumPy arrays over one of tensors, so that tests of any backend can ask it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from headrace.ops.experts import Routes
from headrace.ops.interface import Ops
from headrace.ops.operands import Norm
from headrace.ops.torch import TorchOps

_HOST_ARGUMENTS = {"scale_rows": 1}
"""Operations that take floats in NumPy, and the place of that argument."""


DEVICE = os.environ.get("HEADRACE_TEST_DEVICE", "cpu")
"""Where the tests of the torch backend compute."""


def torch_ops() -> Ops:
    """The torch backend on that device, for NumPy arrays."""
    return cast(Ops, OnHost(TorchOps(DEVICE, threads=1)))


def kernel_ops() -> Ops:
    """The same with kernels in Triton, also where they are interpreted."""
    return cast(Ops, OnHost(TorchOps(DEVICE, threads=1, kernels=True)))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch in this process; on a device they change nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class OnHost:
    """A backend whose arrays are tensors, asked with NumPy arrays; what it changes in place is
    changed in them."""

    def __init__(self, ops: TorchOps) -> None:
        self.tensors = ops

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.tensors, name)
        if not callable(operation):
            return operation
        stays = _HOST_ARGUMENTS.get(name)

        def run(*arguments: Any, **named: Any) -> Any:
            given = [
                value if place == stays else self._tensor(value)
                for place, value in enumerate(arguments)
            ]
            rest = {key: self._tensor(each) for key, each in named.items()}
            result = _array(operation(*given, **rest))
            for array, tensor in zip(arguments, given, strict=True):
                # What was changed in place; on a processor it is the same memory.
                moved = isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu"
                if moved and array.flags.writeable:
                    array[:] = tensor.cpu().numpy()
            return result

        return run

    def _tensor(self, value: Any) -> Any:
        if isinstance(value, Norm):
            bias = None if value.bias is None else self._tensor(value.bias)
            return replace(value, weight=self._tensor(value.weight), bias=bias)
        if isinstance(value, Routes):
            return Routes(*(torch.from_numpy(each).to(self.tensors.device) for each in value))
        if isinstance(value, list) and all(isinstance(each, np.ndarray) for each in value):
            return [self._tensor(each) for each in value]
        if isinstance(value, np.ndarray) and value.dtype == np.float32:
            shared = torch.from_numpy(value if value.flags.writeable else value.copy())
            return shared.to(self.tensors.device)
        return value


def _array(value: Any) -> Any:
    if isinstance(value, Routes):
        return Routes(value.experts.cpu().numpy(), value.weights.cpu().numpy())
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value
