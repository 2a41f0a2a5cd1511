"""The tensors of a checkpoint, by name and shape, and the account of what a load has read.

Tensors that nobody asked for stop the load, as unread config keys do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models.rope import RopeConfig
from headrace.ops.interface import Ops
from headrace.ops.operands import Array
from headrace.weights.architectures import LONGROPE_FACTORS, ROPE_FACTORS
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.model_config.no_effect import is_derived
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all; the last call has them equal."""

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
HEAD_BIAS = "lm_head.bias"


class TensorReader:
    """The tensors of one checkpoint for one backend, each marked as used when it is read."""

    def __init__(self, checkpoint: Checkpoint, ops: Ops, progress: Progress | None = None) -> None:
        self._checkpoint = checkpoint
        self._ops = ops
        self._conventions = checkpoint.conventions
        self._progress = progress
        self._taken: set[str] = set()
        tensors = checkpoint.tensors.items()
        self.total_bytes = sum(item.nbytes for name, item in tensors if not is_derived(name))
        self._done_bytes = 0
        self.packed_elements = 0
        """Values in the matrices handed out so far for products that every token meets."""
        self.routed_elements = 0
        """Values in the matrices handed out so far of experts that a router chooses from."""
        self.routed_bytes = 0
        """Bytes of these as stored."""

    @property
    def dominant_codec(self) -> str:
        """Name of the codec that most bytes of matrices are stored in."""
        matrices = [item for item in self._checkpoint.tensors.values() if len(item.shape) == 2]
        sizes = Counter[str]()
        for tensor in matrices:
            sizes[tensor.codec.name] += tensor.nbytes
        return sizes.most_common(1)[0][0] if sizes else "F32"

    def step_bytes(self, table: str = EMBEDDING, *more: str) -> int:
        """Bytes every step reads: all but experts, an embedding table that is only looked up, and
        the tables of `more`, which always are.
        """
        tensors = self._checkpoint.tensors
        looked_up = [tensors[name] for name in more if name in tensors]
        if HEAD in tensors and table in tensors:
            looked_up.append(tensors[table])
        return self.total_bytes - self.routed_bytes - sum(item.nbytes for item in looked_up)

    def rows(self, name: str) -> int:
        """Rows of a table, where the config does not state them."""
        tensor = self._checkpoint.tensors.get(name)
        if tensor is None:
            raise self._missing(name)
        return tensor.shape[0]

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds a tensor of this name."""
        return name in self._checkpoint.tensors

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor, marked as used. Raises CheckpointError where absent or of another shape."""
        tensor = self._checkpoint.tensors.get(name)
        if tensor is None:
            raise self._missing(name)
        if tensor.shape != shape:
            raise CheckpointError(
                f"{self._checkpoint.path}: tensor {name} has shape {list(tensor.shape)}, "
                f"the config asks for {list(shape)}"
            )
        self._taken.add(name)
        return tensor

    def optional_vector(self, name: str, size: int) -> npt.NDArray[np.float32] | None:
        """Values of a 1-d tensor, float32[size], or None where the checkpoint has none."""
        if not self.has(name):
            return None
        tensor = self.tensor(name, size)
        self._advance(tensor)
        return tensor.to_f32()

    def rope_divisors(self, head_dim: int, rope: RopeConfig) -> npt.NDArray[np.float32] | None:
        """What rotary frequencies are divided by, where a tensor says it, float32[dims / 2]."""
        if rope.kind == "longrope":
            # The config of a GGUF file has longrope's lists from these.
            self._taken.update(LONGROPE_FACTORS)
        elif rope.kind == "proportional":
            # And here the share of a head.
            self._taken.add(ROPE_FACTORS)
            return None
        divisors = self._stored_divisors(head_dim, rope.rotary_dim(head_dim) // 2)
        if divisors is not None:
            self._check(ROPE_FACTORS, divisors, divisors > 0, "above 0 and finite")
        return divisors

    def _stored_divisors(self, head_dim: int, pairs: int) -> npt.NDArray[np.float32] | None:
        stored = self._checkpoint.tensors.get(ROPE_FACTORS)
        if stored is None or stored.shape != (head_dim // 2,):
            return self.optional_vector(ROPE_FACTORS, pairs)
        # Files of models whose kinds of layers rotate other shares of a head have one for all of
        # it, of which these are the first.
        divisors = stored.to_f32().reshape(-1)
        self._taken.add(ROPE_FACTORS)
        self._advance(stored)
        if (divisors[pairs:] != 1).any():
            raise UnsupportedModelError(
                f"{self._checkpoint.path}: tensor {ROPE_FACTORS} divides frequencies of dimensions "
                f"that are not rotated, behind the first {2 * pairs} of a head"
            )
        return divisors[:pairs]

    def vector(
        self,
        name: str,
        width: int,
        *,
        offset: float = 0.0,
        is_row: bool = False,
        finite: bool = False,
    ) -> Array:
        """A vector f32[width] of the backend, with `offset` added to its values.

        is_row: it is stored as a matrix [1, width]. finite: whether other values stop the load,
        as where no request could be computed with them.
        """
        tensor = self.tensor(name, 1, width) if is_row else self.tensor(name, width)
        if finite:
            values = tensor.to_f32().reshape(-1)
            self._check(name, values, np.isfinite(values), "finite")
        vector = self._ops.vector(replace(tensor, shape=(width,)), offset=offset)
        self._advance(tensor)
        return vector

    def vector_if_there(self, name: str, width: int) -> Array | None:
        """A vector f32[width] of the backend, or None where the checkpoint has none."""
        return self.vector(name, width) if self.has(name) else None

    def _check(
        self,
        name: str,
        values: npt.NDArray[np.float32],
        allowed: npt.NDArray[np.bool_],
        words: str,
    ) -> None:
        """Raise CheckpointError where a value is not finite or not allowed."""
        wrong = np.flatnonzero(~(allowed & np.isfinite(values)))
        if wrong.size:
            raise CheckpointError(
                f"{self._checkpoint.path}: tensor {name} holds {values[wrong[0]]} at {wrong[0]}; "
                f"its values have to be {words}. The file is damaged, fetch it again"
            )

    def set_aside(self, prefix: str, names: Collection[str]) -> None:
        """Account for tensors that are part of the model and not run: those of `names`, which
        stand behind `prefix` + ".". Others there are left to stop the load.
        """
        for name in names:
            tensor = self._checkpoint.tensors.get(f"{prefix}.{name}")
            if tensor is not None:
                self._taken.add(tensor.name)
                self.total_bytes -= tensor.nbytes

    def finish(self) -> None:
        """Stop the load where a tensor was left unused; free what was read of the file."""
        unused = [
            name
            for name in self._checkpoint.tensors
            if name not in self._taken and not is_derived(name)
        ]
        if unused:
            shown = ", ".join(sorted(unused)[:5])
            raise UnsupportedModelError(
                f"{self._checkpoint.path}: {len(unused)} tensors are not part of this family as "
                f"implemented: {shown}{', ...' if len(unused) > 5 else ''}. "
                "Leaving them out would change the result"
            )
        for tensor in self._checkpoint.tensors.values():
            tensor.let_go()  # some are read again after they were accounted for
        if self._progress is not None:
            self._progress(self.total_bytes, self.total_bytes)

    def _missing(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"{self._checkpoint.path}: tensor {name} is missing; the file is incomplete"
        )

    def _stored(
        self, names: Sequence[str], outs: Sequence[int], width: int, bias: bool | None
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Matrices and biases as the file has them. finish() finds a bias the config denies."""
        matrices: list[Tensor] = []
        biases: list[Tensor | None] = []
        for name, out in zip(names, outs, strict=True):
            matrices.append(self._matrix(f"{name}.weight", out, width))
            has_bias = self.has(f"{name}.bias") if bias is None else bias
            biases.append(self.tensor(f"{name}.bias", out) if has_bias else None)
        return matrices, biases

    def _matrix(self, name: str, out: int, width: int) -> Tensor:
        """A matrix (out, width), turned where the file stores it (width, out)."""
        if not self._conventions.transposed:
            return self.tensor(name, out, width)
        stored = self.tensor(name, width, out)
        if stored.codec.block_elements > 1 or isinstance(stored, ScaledTensor):
            raise UnsupportedModelError(
                f"{self._checkpoint.path}: tensor {name} is {stored.codec.name} and stored "
                "(in, out), whose blocks cannot be turned; use F32, F16 or BF16, or a GGUF file"
            )
        return stored.transposed()

    def _advance(self, *tensors: Tensor) -> None:
        """Account for tensors of which the backend has what it needs."""
        for tensor in tensors:
            tensor.let_go()
        self._done_bytes += sum(tensor.nbytes for tensor in tensors)
        if self._progress is not None:
            self._progress(min(self._done_bytes, self.total_bytes), self.total_bytes)
