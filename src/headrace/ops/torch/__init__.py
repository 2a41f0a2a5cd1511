"""The torch backend: every operation on tensors of a device, a processor or a GPU."""

from headrace.ops.torch.backend import TorchOps

__all__ = ["TorchOps"]
