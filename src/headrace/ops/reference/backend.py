"""`ReferenceOps`: every operation in plain NumPy, float32 between operations.

Obviously right rather than quick: each row of a batch is computed alone, so a result cannot
depend on the batch. Inside an operation sums are float64 and rounded once at its end; the other
backends are measured against it with a tolerance that only their own rounding explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from headrace.ops.interface import (
    AttentionShape,
    EmbeddingWeight,
    KVCacheArrays,
    KVCacheSpec,
    LinearWeight,
    Norm,
    Ops,
    RaggedBatch,
    RopeTable,
    SamplingRows,
    TopLogprobs,
)
from headrace.ops.reference import attention, sampling
from headrace.ops.reference.arithmetic import (
    BLOCK,
    F32,
    F64,
    Q8Matrix,
    dense_product,
    norm_row,
    q8_product,
    round_bf16,
)
from headrace.ops.reference.checks import check_batch, check_ids, check_rows, check_shape
from headrace.ops.shared import f32_rope_table, f32_vector, stacked_bias
from headrace.weights.tensor import Tensor


@dataclass(frozen=True)
class _Packed:
    matrix: F32 | Q8Matrix
    bias: F32 | None


class ReferenceOps(Ops):
    """The definition. Weights are decoded to float32 (Q8_0: kept as integers and scales)."""

    name = "reference"
    level = "reference"
    num_threads = 1

    def vector(self, tensor: Tensor, *, offset: float = 0.0) -> F32:
        return f32_vector(tensor, offset)

    def linear_weight(
        self, parts: Sequence[Tensor], *, bias: Sequence[Tensor | None] | None = None
    ) -> LinearWeight:
        names = ", ".join(part.name for part in parts)
        if not parts or any(len(part.shape) != 2 for part in parts):
            raise ValueError(f"linear_weight takes matrices, got: {names or 'nothing'}")
        codecs = {part.codec.name for part in parts}
        widths = {part.shape[1] for part in parts}
        if len(codecs) > 1 or len(widths) > 1:
            raise ValueError(
                f"{names} cannot be fused: codecs {sorted(codecs)}, widths {sorted(widths)}"
            )
        vector = stacked_bias(parts, bias)
        codec = codecs.pop()
        matrices = [_q8_matrix(part) if codec == "Q8_0" else part.to_f32() for part in parts]
        matrix: F32 | Q8Matrix
        if codec == "Q8_0":
            matrix = Q8Matrix(*(np.concatenate(column) for column in zip(*matrices, strict=True)))
        else:
            matrix = np.concatenate(matrices)
        return LinearWeight(
            out_features=sum(part.shape[0] for part in parts),
            in_features=widths.pop(),
            codec=codec,
            nbytes=sum(part.nbytes for part in parts),
            packed=_Packed(matrix, vector),
        )

    def embedding_weight(self, tensor: Tensor) -> EmbeddingWeight:
        if len(tensor.shape) != 2:
            raise ValueError(f"{tensor.name}: shape {tensor.shape} is not that of a table")
        return EmbeddingWeight(tensor.shape[0], tensor.shape[1], tensor.codec.name, tensor)

    def rope_table(
        self,
        inv_freq: npt.NDArray[np.float64],
        positions: int,
        *,
        attention_factor: float = 1.0,
    ) -> RopeTable:
        return f32_rope_table(inv_freq, positions, attention_factor)

    def kv_cache(self, spec: KVCacheSpec) -> KVCacheArrays:
        return KVCacheArrays(spec, attention.new_cache(spec))

    def embedding(self, weight: EmbeddingWeight, token_ids: npt.NDArray[np.int32]) -> F32:
        check_ids("token id", token_ids, weight.rows)
        tensor: Tensor = weight.packed
        stored = token_ids if tensor.row_order is None else tensor.row_order[token_ids]
        return tensor.codec.decode(tensor.data[stored])

    def rms_norm(self, x: F32, norm: Norm) -> F32:
        check_rows("x", x, len(norm.weight))
        out = np.empty_like(x)
        for index, row in enumerate(x):
            out[index] = norm_row(row, norm.weight, norm.eps)
        return out

    def linear(
        self,
        x: F32,
        weight: LinearWeight,
        *,
        norm: Norm | None = None,
        residual: F32 | None = None,
    ) -> F32:
        check_rows("x", x, weight.in_features)
        if residual is not None:
            check_rows("residual", residual, weight.out_features)
            if len(residual) != len(x):
                raise ValueError(f"residual has {len(residual)} rows, x has {len(x)}")
        packed: _Packed = weight.packed
        out = np.empty((len(x), weight.out_features), np.float32)
        for index, row in enumerate(x if norm is None else self.rms_norm(x, norm)):
            total = _product(packed.matrix, weight.codec, row)
            if packed.bias is not None:
                total += packed.bias
            if residual is not None:
                total += residual[index]
            out[index] = total
        return out

    def rope(
        self,
        qkv: F32,
        shape: AttentionShape,
        table: RopeTable,
        positions: npt.NDArray[np.int32],
        *,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> None:
        check_shape(qkv, shape)
        check_ids("position", positions, len(table.cos))
        if len(positions) != len(qkv):
            raise ValueError(f"{len(positions)} positions for {len(qkv)} rows")
        if table.rotary_dim > shape.head_dim:
            raise ValueError(f"rotary_dim {table.rotary_dim} exceeds head_dim {shape.head_dim}")
        half = table.rotary_dim // 2
        for row, position in zip(qkv, positions, strict=True):
            cos = table.cos[position].astype(np.float64)
            sin = table.sin[position].astype(np.float64)
            heads = row.reshape(-1, shape.head_dim)[: shape.num_heads + shape.num_kv_heads]
            for index, head in enumerate(heads):
                norm = q_norm if index < shape.num_heads else k_norm
                if norm is not None:
                    head[:] = norm_row(head, norm.weight, norm.eps)
                first, second = head[:half].copy(), head[half : 2 * half].copy()
                head[:half] = first * cos - second * sin
                head[half : 2 * half] = second * cos + first * sin

    def kv_write(
        self, qkv: F32, shape: AttentionShape, kv: KVCacheArrays, layer: int, batch: RaggedBatch
    ) -> None:
        check_batch(qkv, shape, kv, layer, batch)
        attention.write(qkv, shape, kv.arrays, layer, batch)

    def paged_attention(
        self, qkv: F32, shape: AttentionShape, kv: KVCacheArrays, layer: int, batch: RaggedBatch
    ) -> F32:
        check_batch(qkv, shape, kv, layer, batch)
        return attention.attend(qkv, shape, kv.arrays, layer, batch)

    def gated_activation(self, gate_up: F32, kind: Literal["silu"]) -> F32:
        if kind != "silu":
            raise ValueError(f"activation {kind!r} is unknown; supported: silu")
        if gate_up.shape[1] % 2:
            raise ValueError(f"gate_up has an odd width {gate_up.shape[1]}")
        gate, up = np.split(gate_up.astype(np.float64), 2, axis=1)
        with np.errstate(over="ignore"):  # exp(-gate) = inf gives -0, which is the limit
            out: F32 = (gate / (1 + np.exp(-gate)) * up).astype(np.float32)
        return out

    def take_rows(self, x: F32, rows: npt.NDArray[np.int32]) -> F32:
        check_ids("row", rows, len(x))
        return x[rows]

    def sample(self, logits: F32, rows: SamplingRows, num_tokens: int) -> npt.NDArray[np.int32]:
        return sampling.sample(logits, rows, num_tokens)

    def top_logprobs(
        self, logits: F32, chosen: npt.NDArray[np.int32], k: int, num_tokens: int
    ) -> TopLogprobs:
        return sampling.top_logprobs(logits, chosen, k, num_tokens)


def _product(matrix: F32 | Q8Matrix, codec: str, row: F32) -> F64:
    """One row against the weights, its operands rounded as the codec demands."""
    if isinstance(matrix, Q8Matrix):
        return q8_product(matrix, row)
    return dense_product(matrix, round_bf16(row) if codec == "BF16" else row)


def _q8_matrix(tensor: Tensor) -> Q8Matrix:
    stored = tensor.data if tensor.row_order is None else tensor.data[tensor.row_order]
    rows, width = tensor.shape
    blocks = stored.reshape(rows, width // BLOCK, BLOCK + 2)
    scales = blocks[:, :, :2].copy().view(np.float16).reshape(rows, -1).astype(np.float32)
    return Q8Matrix(scales, blocks[:, :, 2:].view(np.int8))
