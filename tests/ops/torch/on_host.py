"""An `Ops` of NumPy arrays over one of tensors, so that tests of any backend can ask it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from headrace.ops.experts import Routes
from headrace.ops.interface import Norm, Ops
from headrace.ops.torch import TorchOps

_HOST_ARGUMENTS = {"scale_rows": 1}
"""Operations that take floats in NumPy, and the place of that argument."""


def torch_ops() -> Ops:
    """The torch backend on a processor, for NumPy arrays."""
    return cast(Ops, OnHost(TorchOps("cpu")))


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
                value if place == stays else _tensor(value) for place, value in enumerate(arguments)
            ]
            return _array(operation(*given, **{key: _tensor(one) for key, one in named.items()}))

        return run


def _tensor(value: Any) -> Any:
    if isinstance(value, Norm):
        bias = None if value.bias is None else _tensor(value.bias)
        return replace(value, weight=_tensor(value.weight), bias=bias)
    if isinstance(value, Routes):
        return Routes(torch.from_numpy(value.experts), torch.from_numpy(value.weights))
    if isinstance(value, list) and all(isinstance(one, np.ndarray) for one in value):
        return [_tensor(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    return value


def _array(value: Any) -> Any:
    if isinstance(value, Routes):
        return Routes(value.experts.numpy(), value.weights.numpy())
    return value.numpy() if isinstance(value, torch.Tensor) else value
