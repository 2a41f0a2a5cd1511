"""What backends share: vectors, rotation tables and stacked biases in NumPy, and refusals.

None of it is arithmetic that kernels could differ in: arrays are made once at load. Backends whose
arrays are others convert these results.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import UnsupportedModelError
from headrace.ops.experts import MOST_EXPERTS, Routing
from headrace.ops.kv import AttentionShape
from headrace.ops.operands import Norm, RopeTable
from headrace.weights.codecs import BLOCK_ROUNDED, ROW_ROUNDED, get_codec
from headrace.weights.tensors.tensor import Tensor

BLOCK = 32
"""Values of a row that share a scale where they meet weights of most quantised kinds."""


class HeadWidths(Protocol):
    """Heads of K and V, as an attention shape, a layer or a cache states them."""

    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def value_dim(self) -> int: ...
    @property
    def latent(self) -> bool: ...


def heads_in_words(widths: HeadWidths) -> str:
    """The heads of K and V, for messages."""
    heads = f"{widths.num_kv_heads} heads of {widths.head_dim}"
    value_dim = widths.value_dim or widths.head_dim
    if widths.latent:
        return f"{heads} whose last {value_dim} are the values"
    return heads if value_dim == widths.head_dim else f"{heads} with values of {value_dim}"


def check_value_dim(widths: HeadWidths) -> None:
    """Values must have a width, and latent ones must be part of a key."""
    value_dim, head_dim = widths.value_dim, widths.head_dim
    if value_dim < 0:
        raise ValueError(f"value_dim {value_dim} is negative; 0 means head_dim {head_dim}")
    if widths.latent and value_dim > head_dim:
        raise ValueError(
            f"value_dim {value_dim} exceeds head_dim {head_dim}, of which latent values are a part"
        )


def values_of_a_scale(codec: str, width: int) -> int:
    """How many values of a row of `width` share a scale where they meet quantised weights of this
    kind."""
    if codec in ROW_ROUNDED:
        return width
    return get_codec(codec).block_elements if codec in BLOCK_ROUNDED else BLOCK


def f32_vector(tensor: Tensor, offset: float = 0.0) -> npt.NDArray[np.float32]:
    """A 1-d tensor as f32[n], with `offset` added; ValueError for any other shape."""
    if len(tensor.shape) != 1:
        raise ValueError(f"{tensor.name}: shape {tensor.shape} is not that of a vector")
    return tensor.to_f32() + np.float32(offset)


def check_ids(name: str, ids: npt.NDArray[np.int32], limit: int) -> None:
    """Every id must lie in [0, limit)."""
    bad = (ids < 0) | (ids >= limit)
    if bad.any():
        raise ValueError(f"{name} {int(ids[bad][0])} is not in [0, {limit})")


def f32_rows(
    table: Tensor,
    ids: npt.NDArray[np.int32],
    scale: float = 1.0,
    residual: npt.NDArray[np.float32] | None = None,
) -> npt.NDArray[np.float32]:
    """residual + scale * the rows `ids` of a table, decoded: f32[n, width], each step rounded."""
    stored = ids if table.row_order is None else table.row_order[ids]
    rows = table.decoded(table.data[stored], stored.astype(np.int64))
    if scale != 1.0:
        rows = rows * np.float32(scale)
    return rows if residual is None else rows + residual


def f32_rope_table(
    inv_freq: npt.NDArray[np.float64], positions: int, attention_factor: float = 1.0
) -> RopeTable:
    """cos and sin for positions [0, positions): angles in float64, results rounded once to f32.

    Raises ValueError for fewer than one position.
    """
    if positions < 1:
        raise ValueError(f"positions of a rope table must be at least 1, not {positions}")
    angles = np.arange(positions, dtype=np.float64)[:, None] * inv_freq
    return RopeTable(
        (np.cos(angles) * attention_factor).astype(np.float32),
        (np.sin(angles) * attention_factor).astype(np.float32),
        2 * len(inv_freq),
    )


def fused_codec(parts: Sequence[Tensor]) -> tuple[str, int]:
    """Codec and width that all of `parts` have; ValueError where they are no such matrices."""
    names = ", ".join(part.name for part in parts)
    if not parts or any(len(part.shape) != 2 for part in parts):
        raise ValueError(
            f"a linear weight takes matrices of shape [out, in], not: {names or 'none'}"
        )
    codecs = {part.codec.name for part in parts}
    widths = {part.shape[1] for part in parts}
    if 0 in widths:
        raise ValueError(f"a linear weight takes at least one input; one of {names} has none")
    if len(codecs) > 1 or len(widths) > 1:
        raise ValueError(
            f"{names} cannot be fused: codecs {sorted(codecs)}, widths {sorted(widths)}"
        )
    return codecs.pop(), widths.pop()


def fused_order(parts: Sequence[Tensor]) -> npt.NDArray[np.int32] | None:
    """The order of columns that all of `parts` have; ValueError where they differ in it."""
    first = parts[0]
    for part in parts[1:]:
        if not same_order(first, part):
            raise ValueError(f"{first.name} and {part.name} have their columns in other orders")
    return first.column_order


def same_order(one: Tensor, other: Tensor) -> bool:
    """Whether two matrices have their columns in the same order."""
    first, second = one.column_order, other.column_order
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second)


def check_in_order(tensor: Tensor) -> None:
    """Raise UnsupportedModelError where columns have an order of their own."""
    if tensor.column_order is not None:
        raise UnsupportedModelError(
            f"tensor {tensor.name} has columns in an order of their own (desc_act, actorder), in "
            "which projections are read, and neither experts nor tables. Use a folder made "
            "without it, or a GGUF file of the model"
        )


def expert_shape(
    experts: Sequence[Sequence[Tensor]], bias: Sequence[Sequence[Tensor | None]] | None
) -> tuple[str, int, int]:
    """Codec, outputs and width that all experts have; ValueError where they differ."""
    if not 1 <= len(experts) <= MOST_EXPERTS:
        raise ValueError(f"{len(experts)} experts: their number is not in [1, {MOST_EXPERTS}]")
    if bias is not None and len(bias) != len(experts):
        raise ValueError(f"biases of {len(bias)} experts for {len(experts)}")
    kinds: dict[tuple[str, int, int], str] = {}
    for parts in experts:
        for part in parts:
            check_in_order(part)
        codec, width = fused_codec(parts)
        kinds[codec, sum(part.shape[0] for part in parts), width] = parts[0].name
    if len(kinds) > 1:
        shapes = [f"{name}: {codec} {out} x {width}" for (codec, out, width), name in kinds.items()]
        raise ValueError(f"experts of one layer must be alike: {'; '.join(shapes)}")
    return next(iter(kinds))


def head_shape(heads: Sequence[Tensor]) -> tuple[str, int, int]:
    """Codec, outputs and width of the matrices of all heads; ValueError where they differ."""
    if not heads:
        raise ValueError("a weight of heads takes at least one matrix")
    kinds = {(*fused_codec([head]), head.shape[0]): head.name for head in heads}
    if len(kinds) > 1:
        shapes = [f"{name}: {codec} {out} x {width}" for (codec, width, out), name in kinds.items()]
        raise ValueError(f"heads of one layer must be alike: {'; '.join(shapes)}")
    ((codec, width, out),) = kinds
    return codec, out, width


def check_factors(factors: Sized | None, routing: Routing) -> None:
    """There must be one for each expert, where there are any."""
    if factors is not None and len(factors) != routing.num_experts:
        raise ValueError(f"{len(factors)} factors for {routing.num_experts} experts")


def expert_biases(
    experts: Sequence[Sequence[Tensor]], bias: Sequence[Sequence[Tensor | None]] | None
) -> npt.NDArray[np.float32] | None:
    """The biases of all experts one after another, as `stacked_bias` does for one."""
    if bias is None:
        return None
    for parts, vectors in zip(experts, bias, strict=True):
        if len(vectors) != len(parts):
            raise ValueError(f"{len(vectors)} biases for {len(parts)} matrices: {parts[0].name}")
    parts = [part for of_expert in experts for part in of_expert]
    return stacked_bias(parts, [vector for of_expert in bias for vector in of_expert])


def is_centred(norm: Norm) -> bool:
    """Whether the mean is taken off first (LayerNorm); ValueError for an unknown kind."""
    if norm.kind not in ("rms", "layer"):
        raise ValueError(f"norm kind {norm.kind!r} is unknown; supported: rms, layer")
    return norm.kind == "layer"


def check_head_norm(name: str, norm: Norm | None) -> None:
    """Norms inside rope are RMS norms without a bias; ValueError for any other."""
    if norm is not None and (is_centred(norm) or norm.bias is not None):
        raise ValueError(
            f"{name} of rope must be an rms norm without bias, not kind {norm.kind!r}"
            f"{'' if norm.bias is None else ' with bias'}; norm_columns takes any"
        )


def stacked_bias(
    parts: Sequence[Tensor], bias: Sequence[Tensor | None] | None
) -> npt.NDArray[np.float32] | None:
    """All biases one after another, zeros where a part has none; None where no part has one.

    Raises ValueError where their number or one's length is not that of `parts`.
    """
    if bias is None:
        return None
    if len(bias) != len(parts):
        names = ", ".join(part.name for part in parts)
        raise ValueError(f"{len(bias)} biases for {len(parts)} matrices: {names}")
    if all(vector is None for vector in bias):
        return None
    vectors = []
    for part, vector in zip(parts, bias, strict=True):
        if vector is not None and vector.shape != part.shape[:1]:
            raise ValueError(f"{vector.name}: shape {vector.shape} does not fit {part.shape[:1]}")
        vectors.append(np.zeros(part.shape[0], np.float32) if vector is None else vector.to_f32())
    return np.concatenate(vectors)


def check_rotation(
    num_rows: int,
    shape: AttentionShape,
    table: RopeTable,
    positions: npt.NDArray[np.int32],
    q_norm: Norm | None,
    k_norm: Norm | None,
) -> None:
    """Raise ValueError where norms, positions or the table are not of rows of this shape."""
    check_head_norm("q_norm", q_norm)
    check_head_norm("k_norm", k_norm)
    check_ids("position", positions, len(table.cos))
    if len(positions) != num_rows:
        raise ValueError(f"{len(positions)} positions for {num_rows} rows")
    if table.rotary_dim > shape.head_dim:
        raise ValueError(f"rotary_dim {table.rotary_dim} exceeds head_dim {shape.head_dim}")
