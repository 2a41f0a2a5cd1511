"""From a checkpoint's tensors to a backend's weights.

Tensors are asked for by canonical name and expected shape; what a file stores differently (rows
of Q and K, an offset of the norms) is undone here by its conventions. Tensors that nobody asked
for stop the load, as unread config keys do. Knows no architecture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models.rope import RopeConfig
from headrace.ops.experts import ExpertWeight
from headrace.ops.interface import Array, EmbeddingWeight, HeadWeight, LinearWeight, Norm, Ops
from headrace.ops.kv import AttentionShape
from headrace.weights.architectures import LONGROPE_FACTORS, ROPE_FACTORS
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import F32
from headrace.weights.fused_rows import loaded_order
from headrace.weights.latent_heads import JOINED, KEYS, VALUES, single_heads, split
from headrace.weights.no_effect import is_derived
from headrace.weights.rope_rows import heads_to_half
from headrace.weights.tensor import Tensor

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all; the last call has them equal."""

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
HEAD_BIAS = "lm_head.bias"


@dataclass(frozen=True)
class Linear:
    """A projection, or several that share their input. One weight unless codecs differ.

    Files that mix codecs (GGUF's V in a finer kind than Q and K) cannot be fused; their outputs
    are then computed apart and joined, with the same values.
    """

    ops: Ops
    weights: tuple[LinearWeight, ...]

    def __call__(
        self,
        x: Array,
        *,
        norm: Norm | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """residual + scale * (W norm(x) + bias): f32[N, sum of the projections' widths]."""
        if len(self.weights) == 1:
            return self.ops.linear(x, self.weights[0], norm=norm, residual=residual, scale=scale)
        if residual is not None:
            raise ValueError("a residual cannot be added to projections of different codecs")
        x = x if norm is None else self.ops.norm(x, norm)
        return self.ops.concat([self.ops.linear(x, weight, scale=scale) for weight in self.weights])


class Loader:
    """A source of the weights of one checkpoint for one backend, which remembers what it handed
    out.
    """

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
        return self.optional_vector(ROPE_FACTORS, rope.rotary_dim(head_dim) // 2)

    def norm(
        self, name: str, width: int, eps: float, kind: Literal["rms", "layer"] = "rms"
    ) -> Norm:
        """The norm `{name}.weight`, f32[width]; a layer norm with `{name}.bias` if it is there."""
        bias = f"{name}.bias"
        return Norm(
            self._vector(f"{name}.weight", width, self._conventions.norm_offset),
            eps,
            kind,
            self._vector(bias, width) if kind == "layer" and self.has(bias) else None,
        )

    def norm_of_vector(
        self, name: str, width: int, eps: float, *, factor: float = 1.0, repeats: int = 1
    ) -> Norm:
        """An RMS norm whose weights are a vector of any name, times `factor` and `repeats` times in
        turn: f32[repeats * width].
        """
        tensor = self.tensor(name, width)
        values = np.tile(tensor.to_f32().reshape(-1) * np.float32(factor), repeats)
        self._advance(tensor)
        return Norm(self._plain_vector(name, values), eps)

    def plain_norm(self, width: int, eps: float) -> Norm:
        """An RMS norm without weights, which are 1 then."""
        return Norm(self._plain_vector("ones", np.ones(width, np.float32)), eps)

    def _plain_vector(self, name: str, values: npt.NDArray[np.float32]) -> Array:
        return self._ops.vector(Tensor(name, values.shape, F32, F32.encode(values.reshape(1, -1))))

    def _vector(self, name: str, width: int, offset: float = 0.0) -> Array:
        tensor = self.tensor(name, width)
        vector = self._ops.vector(tensor, offset=offset)
        self._advance(tensor)
        return vector

    def head_norm(
        self,
        name: str,
        head_dim: int,
        eps: float,
        *,
        rotary_dim: int | None = None,
        heads: int = 1,
    ) -> Norm:
        """An RMS norm over each head of Q or K, f32[heads * head_dim] in "half" order.

        heads: how often its weights are repeated, for an operation on all heads at once.
        """
        return self._row_norm(name, (head_dim,), head_dim, eps, "rms", rotary_dim, heads)

    def unit_norm(self, width: int, eps: float) -> Norm:
        """An RMS norm without weights."""
        ones = np.ones((1, width), np.float32)
        return Norm(self._ops.vector(Tensor("ones", (width,), F32, F32.encode(ones))), eps)

    def projection_norm(
        self,
        name: str,
        shape: tuple[int, ...],
        head_dim: int,
        eps: float,
        kind: Literal["rms", "layer"] = "rms",
        *,
        rotary_dim: int | None = None,
    ) -> Norm:
        """A norm with a weight for every row of Q or K, f32[heads * head_dim] in "half" order.

        shape: as stored, (heads * head_dim,) or (heads, head_dim).
        """
        return self._row_norm(name, shape, head_dim, eps, kind, rotary_dim)

    def _row_norm(
        self,
        name: str,
        shape: tuple[int, ...],
        head_dim: int,
        eps: float,
        kind: Literal["rms", "layer"],
        rotary_dim: int | None,
        repeats: int = 1,
    ) -> Norm:
        """Weights that stand beside rows of Q or K are stored in the order of those rows."""
        tensor = self.tensor(f"{name}.weight", *shape)
        values = tensor.to_f32().reshape(-1)
        if self._conventions.rope_layout == "interleaved":
            values = values[heads_to_half(len(values) // head_dim, head_dim, rotary_dim)]
        values = np.tile(values, repeats)
        flat = Tensor(tensor.name, values.shape, F32, F32.encode(values.reshape(1, -1)))
        vector = self._ops.vector(flat, offset=self._conventions.norm_offset)
        self._advance(tensor)
        return Norm(vector, eps, kind)

    def embedding(self, name: str, rows: int, width: int) -> EmbeddingWeight:
        """A table that is looked up: of tokens, or of positions."""
        tensor = self.tensor(name, rows, width)
        weight = self._ops.embedding_weight(tensor)
        self._advance(tensor)
        return weight

    def linear(
        self, names: Sequence[str], outs: Sequence[int], width: int, *, bias: bool | None
    ) -> Linear:
        """Projections (out_i, width) called `names`, fused where their codecs allow.

        bias: whether the config says there is one; None means what the file holds.
        """
        return self._packed(*self._stored(names, outs, width, bias))

    def reordered(
        self,
        name: str,
        rows: int,
        width: int,
        make_order: Callable[[], npt.NDArray[np.int32]],
        *,
        bias: bool | None,
    ) -> Linear:
        """The projection `name` (rows, width) with its rows, and those of its bias, in an order.

        make_order: called once the tensor is known to have so many rows as the config says.
        """
        matrices, biases = self._stored([name], [rows], width, bias)
        order = make_order()
        return self._packed([matrices[0].select_rows(order)], [_reordered(biases[0], order)])

    def latent_heads(
        self, prefix: str, heads: int, nope: int, value: int, latent: int
    ) -> tuple[HeadWeight, HeadWeight]:
        """Matrices (latent, nope) and (value, latent) of every head of latent attention."""
        if self.has(f"{prefix}.{JOINED}"):
            joined = self.tensor(f"{prefix}.{JOINED}", heads * (nope + value), latent)
            parts = split(joined, heads, nope, value)
            stored: tuple[Tensor, ...] = (joined,)
        else:
            keys = self.tensor(f"{prefix}.{KEYS}", heads, latent, nope)
            values = self.tensor(f"{prefix}.{VALUES}", heads, value, latent)
            parts, stored = (single_heads(keys), single_heads(values)), (keys, values)
        of_keys, of_values = (self._ops.head_weight(matrices) for matrices in parts)
        self.packed_elements += heads * (nope + value) * latent
        self._advance(*stored)
        return of_keys, of_values

    def router(self, name: str, rows: int, width: int, *, bias: bool = False) -> Linear:
        """The projection `name` whose results choose, in F32 whatever the file's kind.

        It is small, and a rounded score chooses others; GGUF files hold it in F32.
        """
        tensor = self._matrix(f"{name}.weight", rows, width)
        offset = self.tensor(f"{name}.bias", rows) if bias else None
        self._advance(tensor, *(() if offset is None else (offset,)))
        exact = Tensor(tensor.name, tensor.shape, F32, F32.encode(tensor.to_f32()))
        return self._packed([exact], [offset], counted=True)

    def qkv(
        self,
        prefix: str,
        shape: AttentionShape,
        width: int,
        *,
        bias: bool | None,
        rotary_dim: int | None = None,
        stored: Literal["qkv", "qkk", "q"] = "qkv",
    ) -> Linear:
        """Q, K and V of one layer, fused, rows of Q and K in "half" order whatever the file's.

        rotary_dim: dimensions of a head that are rotated, and so reordered; None means all.
        stored: the projections that give them, by letter: "qkk" where values are what keys are
        before their norm and rotation, "q" where the layer has neither.
        """
        names = [f"{prefix}.{letter}_proj" for letter in stored]
        heads = (shape.num_heads, shape.num_kv_heads)
        outs = [count * shape.head_dim for count in heads]
        outs.append(shape.num_kv_heads * shape.value_width)
        matrices, biases = self._stored(names, outs[: len(names)], width, bias)
        if self._conventions.rope_layout == "interleaved":
            for index in range(min(2, len(names))):
                order = heads_to_half(heads[index], shape.head_dim, rotary_dim)
                matrices[index] = matrices[index].select_rows(order)
                biases[index] = _reordered(biases[index], order)
        return self._packed(matrices, biases)

    def fused_qkv(
        self,
        name: str,
        shape: AttentionShape,
        width: int,
        *,
        bias: bool | None,
        rotary_dim: int | None = None,
    ) -> Linear:
        """Q, K and V of one layer stored as one matrix; the same as `qkv` otherwise."""
        heads, kv_heads, head_dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
        matrices, biases = self._stored([name], [shape.row_width], width, bias)
        order = loaded_order(self._conventions, heads, kv_heads, head_dim, rotary_dim)
        if order is not None:
            matrices = [matrices[0].select_rows(order)]
            biases = [_reordered(biases[0], order)]
        return self._packed(matrices, biases)

    def experts(
        self,
        names: Sequence[str],
        outs: Sequence[int],
        width: int,
        count: int,
        *,
        bias: bool = False,
        routed: bool = True,
    ) -> ExpertWeight:
        """One matrix of each of `count` experts; rows of its parts (out_i, width) stacked.

        names: of the parts, with {} for the number of the expert. bias: whether each part has one.
        routed: False for an expert that every token goes through.
        Raises UnsupportedModelError where their codecs differ.
        """
        experts = [
            [self._matrix(f"{name.format(number)}.weight", out, width)
             for name, out in zip(names, outs, strict=True)]
            for number in range(count)
        ]  # fmt: skip
        parts = [part for parts in experts for part in parts]
        first = parts[0]
        other = next((part for part in parts if part.codec is not first.codec), None)
        if other is not None:
            raise UnsupportedModelError(
                f"{self._checkpoint.path}: tensor {first.name} is {first.codec.name} and "
                f"{other.name} {other.codec.name}; the experts of a layer are computed in one "
                "codec. Use a file whose experts are all of one"
            )
        biases = [
            [self.tensor(f"{name.format(number)}.bias", out)
             for name, out in zip(names, outs, strict=True)]
            for number in range(count)
        ] if bias else None  # fmt: skip
        weight = self._ops.expert_weight(experts, bias=biases)
        values = sum(part.num_values for part in parts)
        parts += [vector for vectors in biases or () for vector in vectors]
        if routed:
            self.routed_elements += values
            self.routed_bytes += sum(part.nbytes for part in parts)
        else:
            self.packed_elements += values
        self._advance(*parts)
        return weight

    def vector(self, name: str, width: int) -> Array:
        """A vector f32[width] of the backend."""
        return self._vector(name, width)

    def set_aside(self, prefix: str, names: Collection[str]) -> None:
        """Account for tensors that are part of the model and not run: those of `names`, which
        stand behind `prefix` + ".". Others there are left to stop the load.
        """
        for name in names:
            tensor = self._checkpoint.tensors.get(f"{prefix}.{name}")
            if tensor is not None:
                self._taken.add(tensor.name)
                self.total_bytes -= tensor.nbytes

    def head(
        self,
        rows: int,
        width: int,
        *,
        tied: bool | None,
        bias: bool | None = False,
        table: str = EMBEDDING,
    ) -> Linear:
        """lm_head, or the embedding `table` where it is tied: logits = W x (+ bias).

        tied: what the config says; None means tied exactly when the file holds no lm_head.
        bias: the same of a bias.
        """
        has_bias = self.has(HEAD_BIAS) if bias is None else bias
        offset = self.tensor(HEAD_BIAS, rows) if has_bias else None
        if not self.has(HEAD):
            if tied is False:
                raise CheckpointError(
                    f"{self._checkpoint.path}: tie_word_embeddings is false but {HEAD} is "
                    "missing; the file is incomplete, or the config should say true"
                )
            return self._packed([self.tensor(table, rows, width)], [offset], counted=True)
        tensor = self.tensor(HEAD, rows, width)
        if tied and not _same_bytes(tensor, self.tensor(table, rows, width)):
            raise CheckpointError(
                f"{self._checkpoint.path}: tie_word_embeddings is true but {HEAD} differs from "
                f"{table}; set it to false to use {HEAD}, or remove that tensor"
            )
        return self._packed([tensor], [offset])

    def finish(self) -> None:
        """Stop the load where a tensor was left unused."""
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
        if stored.codec.block_elements > 1:
            raise UnsupportedModelError(
                f"{self._checkpoint.path}: tensor {name} is {stored.codec.name} and stored "
                "(in, out), whose blocks cannot be turned; use F32, F16 or BF16, or a GGUF file"
            )
        return stored.transposed()

    def _packed(
        self,
        matrices: Sequence[Tensor],
        biases: Sequence[Tensor | None],
        *,
        counted: bool = False,
    ) -> Linear:
        """counted: the matrix was already counted as done, under another use."""
        weights = []
        pairs = zip(matrices, biases, strict=True)
        for _, group in groupby(pairs, key=lambda pair: pair[0].codec.name):
            parts, part_biases = zip(*group, strict=True)
            weights.append(self._ops.linear_weight(parts, bias=part_biases))
            self.packed_elements += sum(part.shape[0] * part.shape[1] for part in parts)
            if not counted:
                self._advance(*parts, *(item for item in part_biases if item is not None))
        return Linear(self._ops, tuple(weights))

    def _advance(self, *tensors: Tensor) -> None:
        self._done_bytes += sum(tensor.nbytes for tensor in tensors)
        if self._progress is not None:
            self._progress(min(self._done_bytes, self.total_bytes), self.total_bytes)


def _reordered(bias: Tensor | None, order: npt.NDArray[np.int32]) -> Tensor | None:
    """A bias with its values in another order, as F32."""
    if bias is None:
        return None
    values = bias.to_f32()[order]
    return Tensor(bias.name, bias.shape, F32, F32.encode(values.reshape(1, -1)))


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    return one.codec is other.codec and bool(np.array_equal(one.data, other.data))
