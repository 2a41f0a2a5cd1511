"""A checkpoint whose unquantised matrices are held in one kind of float, as --dtype names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from headrace.errors import ConfigError
from headrace.weights.architectures import known_architecture
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import BF16, F16, F32
from headrace.weights.tensors.other_kind import ConvertedTensor
from headrace.weights.tensors.tensor import Tensor

Dtype = Literal["auto", "bfloat16", "float16", "half", "float32", "float"]

_CODECS = {"bfloat16": BF16, "float16": F16, "half": F16, "float32": F32, "float": F32}
_PLAIN = (BF16, F16, F32)


def held_as(checkpoint: Checkpoint, dtype: Dtype, *, may_be_quantised: bool = False) -> Checkpoint:
    """The checkpoint with its matrices of F32, F16 and BF16 in `dtype`; as it stands with "auto".

    Vectors stay as they are, and so do routers, whose rounded scores would choose others. Nothing
    is read: values are converted when a backend takes them, and ConfigError is raised then for one
    that float16 does not reach. Raises ConfigError where all matrices are quantised, which no dtype
    changes, unless they may be.
    """
    if dtype == "auto":
        return checkpoint
    codec = _CODECS[dtype]
    architecture = known_architecture(checkpoint.config.get("model_type"))

    def is_router(name: str) -> bool:
        if architecture is None:
            return False
        place = architecture.in_layer(name)
        return place is not None and place[1].rpartition(".")[0] in architecture.routers

    def held(tensor: Tensor) -> Tensor:
        return tensor if tensor.codec is codec else ConvertedTensor(tensor, codec)

    plain = {
        name: held(tensor)
        for name, tensor in checkpoint.tensors.items()
        if tensor.codec in _PLAIN and len(tensor.shape) > 1 and tensor.shape[0] > 1
        if not is_router(name)
    }
    if not plain and may_be_quantised:
        return checkpoint
    if not plain:
        kinds = sorted({item.codec.name for item in checkpoint.tensors.values()} - {"F32"})
        raise ConfigError(
            f"--dtype {dtype} is for weights that are not quantised, and all matrices of "
            f"{checkpoint.path} are ({', '.join(kinds)}): omit it"
        )
    return replace(checkpoint, tensors={**checkpoint.tensors, **plain})
