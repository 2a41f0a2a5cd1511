"""`ReferenceOps`: every operation in plain NumPy, float32 between operations.

Obviously right rather than quick: each row of a batch is computed alone, so a result cannot
depend on the batch. Inside an operation sums are float64 and rounded once at its end; the other
backends are measured against it with a tolerance that only their own rounding explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.ops import adjustment
from headrace.ops.batch_checks import check_masks
from headrace.ops.experts import ExpertMLP, ExpertWeight, Routes, Routing
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheArrays, KVCacheSpec, RaggedBatch
from headrace.ops.operands import (
    Activation,
    EmbeddingWeight,
    HeadWeight,
    LinearWeight,
    Norm,
    RopeTable,
)
from headrace.ops.reference import attention, experts, heads, sampling
from headrace.ops.reference.arithmetic import (
    F32,
    F64,
    activate,
    dense_product,
    gate_by,
    norm_row,
    round_bf16,
    round_quantised,
)
from headrace.ops.reference.checks import (
    check_batch,
    check_heads,
    check_rows,
    check_shape,
)
from headrace.ops.sampling_rows import LogitsEdit, SamplingRows, TopLogprobs
from headrace.ops.shared import (
    BLOCK,
    check_factors,
    check_ids,
    check_rotation,
    expert_shape,
    f32_rope_table,
    f32_rows,
    f32_vector,
    fused_codec,
    fused_order,
    head_shape,
    stacked_bias,
    values_of_a_scale,
)
from headrace.weights.tensors.tensor import Tensor

_FLOATS = frozenset({"F32", "F16", "BF16", "F8_E4M3", "NF4"})
"""Codecs of floats; activations that meet any other are quantised."""
_ROUNDED = frozenset({"BF16", "F8_E4M3"})
"""Those whose activations are rounded to bfloat16."""


@dataclass(frozen=True)
class _Packed:
    matrix: F32
    bias: F32 | None


class ReferenceOps(Ops):
    """The definition. Weights of every codec are decoded to float32."""

    name = "reference"
    level = "reference"
    num_threads = 1

    def vector(self, tensor: Tensor, *, offset: float = 0.0) -> F32:
        return f32_vector(tensor, offset)

    def linear_weight(
        self, parts: Sequence[Tensor], *, bias: Sequence[Tensor | None] | None = None
    ) -> LinearWeight:
        codec, width = fused_codec(parts)
        vector = stacked_bias(parts, bias)
        if codec not in _FLOATS and width % BLOCK:
            raise ValueError(f"{parts[0].name}: width {width} is not a multiple of {BLOCK}")
        matrix = np.concatenate([part.to_f32() for part in parts])
        order = fused_order(parts)
        if order is not None:
            # Inputs are rounded in runs of columns as they are stored.
            matrix = np.take(matrix, order, axis=1)
        return LinearWeight(
            out_features=sum(part.shape[0] for part in parts),
            in_features=width,
            codec=codec,
            nbytes=sum(part.nbytes for part in parts),
            packed=_Packed(matrix, vector),
            column_order=order,
        )

    def expert_weight(
        self,
        experts: Sequence[Sequence[Tensor]],
        *,
        bias: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> ExpertWeight:
        codec, out, width = expert_shape(experts, bias)
        weights = tuple(
            self.linear_weight(parts, bias=None if bias is None else bias[expert])
            for expert, parts in enumerate(experts)
        )
        return ExpertWeight(
            num_experts=len(weights),
            out_features=out,
            in_features=width,
            codec=codec,
            nbytes=sum(weight.nbytes for weight in weights),
            packed=weights,
        )

    def head_weight(self, heads: Sequence[Tensor]) -> HeadWeight:
        codec, out, width = head_shape(heads)
        weights = tuple(self.linear_weight([head]) for head in heads)
        return HeadWeight(
            num_heads=len(weights),
            out_features=out,
            in_features=width,
            codec=codec,
            nbytes=sum(weight.nbytes for weight in weights),
            packed=weights,
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

    def embedding(
        self,
        weight: EmbeddingWeight,
        token_ids: npt.NDArray[np.int32],
        *,
        scale: float = 1.0,
        residual: F32 | None = None,
    ) -> F32:
        check_ids("token id", token_ids, weight.rows)
        tensor: Tensor = weight.packed
        return f32_rows(tensor, token_ids, scale, residual)

    def norm(self, x: F32, norm: Norm, *, residual: F32 | None = None) -> F32:
        check_rows("x", x, len(norm.weight))
        out = np.empty_like(x)
        for index, row in enumerate(x):
            normed = norm_row(row, norm)
            out[index] = normed if residual is None else normed + residual[index]
        return out

    def norm_columns(self, x: F32, start: int, norm: Norm, *, groups: int = 1) -> None:
        width = len(norm.weight)
        if not 0 <= start <= x.shape[1] - width or groups < 1 or width % groups:
            raise ValueError(
                f"columns [{start}, {start + width}) in {groups} groups are not those of rows "
                f"of {x.shape[1]}"
            )
        step = width // groups
        for group in range(groups):
            part = slice(group * step, (group + 1) * step)
            bias = None if norm.bias is None else norm.bias[part]
            of_group = Norm(norm.weight[part], norm.eps, norm.kind, bias)
            for row in x[:, start + part.start : start + part.stop]:
                row[:] = norm_row(row, of_group)

    def linear(
        self,
        x: F32,
        weight: LinearWeight,
        *,
        norm: Norm | None = None,
        residual: F32 | None = None,
        scale: float = 1.0,
    ) -> F32:
        check_rows("x", x, weight.in_features)
        if residual is not None:
            check_rows("residual", residual, weight.out_features)
            if len(residual) != len(x):
                raise ValueError(f"residual has {len(residual)} rows, x has {len(x)}")
        packed: _Packed = weight.packed
        out = np.empty((len(x), weight.out_features), np.float32)
        rows = x if norm is None else self.norm(x, norm)
        if weight.column_order is not None:
            rows = np.take(rows, weight.column_order, axis=1)
        for index, row in enumerate(rows):
            total = _product(packed.matrix, weight.codec, row)
            if packed.bias is not None:
                total += packed.bias
            total *= np.float32(scale)
            if residual is not None:
                total += residual[index]
            out[index] = total
        return out

    def head_linear(
        self, x: F32, weight: HeadWeight, *, kept: int = 0, beside: F32 | None = None
    ) -> F32:
        return heads.run(self, x, weight, kept, beside)

    def route(
        self,
        logits: F32,
        routing: Routing,
        *,
        bias: F32 | None = None,
        factors: F32 | None = None,
    ) -> Routes:
        check_factors(factors, routing)
        routes = experts.route(logits, routing, bias)
        return routes if factors is None else routes.times(factors[routes.experts])

    def experts(
        self,
        x: F32,
        mlp: ExpertMLP,
        routes: Routes,
        *,
        residual: F32 | None = None,
        scale: float = 1.0,
    ) -> F32:
        return experts.run(self, x, mlp, routes, residual, scale)

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
        check_rotation(len(qkv), shape, table, positions, q_norm, k_norm)
        half = table.rotary_dim // 2
        for row, position in zip(qkv, positions, strict=True):
            cos = table.cos[position].astype(np.float64)
            sin = table.sin[position].astype(np.float64)
            rotated = row[: (shape.num_heads + shape.num_kv_heads) * shape.head_dim]
            for index, head in enumerate(rotated.reshape(-1, shape.head_dim)):
                norm = q_norm if index < shape.num_heads else k_norm
                if norm is not None:
                    head[:] = norm_row(head, norm)
                first, second = head[:half].copy(), head[half : 2 * half].copy()
                head[:half] = first * cos - second * sin
                head[half : 2 * half] = second * cos + first * sin

    def kv_write(
        self, qkv: F32, shape: AttentionShape, kv: KVCacheArrays, layer: int, batch: RaggedBatch
    ) -> None:
        place = check_batch(qkv, shape, kv, layer, batch)
        attention.write(qkv, shape, kv.arrays, place, batch)

    def kv_copy(self, kv: KVCacheArrays, pairs: npt.NDArray[np.int32]) -> None:
        check_ids("block", pairs, kv.spec.num_blocks)
        attention.copy(kv.arrays, pairs)

    def kv_populate(self, kv: KVCacheArrays, num_blocks: int, *, wait: bool = False) -> None:
        pass

    def paged_attention(
        self,
        qkv: F32,
        shape: AttentionShape,
        kv: KVCacheArrays,
        layer: int,
        batch: RaggedBatch,
        *,
        sinks: F32 | None = None,
        slopes: F32 | None = None,
        masks: npt.NDArray[np.uint64] | None = None,
    ) -> F32:
        place = check_batch(qkv, shape, kv, layer, batch)
        check_heads("sinks", sinks, shape)
        check_heads("slopes", slopes, shape)
        check_masks(masks, shape, batch)
        terms = attention.Terms(sinks, slopes, masks)
        return attention.attend(qkv, shape, kv.arrays, place, batch, terms)

    def gated_activation(self, gate_up: F32, kind: Activation, *, limit: float = 0.0) -> F32:
        if gate_up.shape[1] % 2:
            raise ValueError(f"gate_up has an odd width {gate_up.shape[1]}")
        gate, up = np.split(gate_up.astype(np.float64), 2, axis=1)
        return gate_by(gate, up, kind, limit).astype(np.float32)

    def activation(self, x: F32, kind: Activation) -> F32:
        return activate(x.astype(np.float64), kind).astype(np.float32)

    def softcap(self, x: F32, cap: float) -> F32:
        if not 0 < cap < np.inf:
            raise ValueError(f"cap {cap} is not in (0, inf)")
        capped: F32 = (cap * np.tanh(x.astype(np.float64) / cap)).astype(np.float32)
        return capped

    def take_rows(self, x: F32, rows: npt.NDArray[np.int32]) -> F32:
        check_ids("row", rows, len(x))
        return x[rows]

    def scale_rows(self, x: F32, factors: F32, *, columns: int) -> None:
        if not 0 <= columns <= x.shape[1] or factors.shape != x.shape[:1]:
            raise ValueError(
                f"{columns} columns and factors of shape {factors.shape} are not those of "
                f"{len(x)} rows of {x.shape[1]}"
            )
        x[:, :columns] *= factors[:, None]

    def gate_heads(self, x: F32, gates: F32) -> None:
        rows, heads = gates.shape
        if len(x) != rows or not heads or x.shape[1] % heads:
            raise ValueError(f"gates of {heads} heads do not fit rows of {x.shape[1]}")
        with np.errstate(over="ignore"):
            shares = 1 / (1 + np.exp(-gates.astype(np.float64)))
        gated = x.reshape(rows, heads, x.shape[1] // heads) * shares[:, :, None]
        x[:] = gated.reshape(x.shape).astype(np.float32)

    def adjust(self, logits: F32, adjustments: Sequence[LogitsEdit]) -> None:
        adjustment.adjust(logits, adjustments)

    def sample(self, logits: F32, rows: SamplingRows, num_tokens: int) -> npt.NDArray[np.int32]:
        return sampling.sample(logits, rows, num_tokens)

    def top_logprobs(
        self, logits: F32, chosen: npt.NDArray[np.int32], k: int, num_tokens: int
    ) -> TopLogprobs:
        return sampling.top_logprobs(logits, chosen, k, num_tokens)


def _product(matrix: F32, codec: str, row: F32) -> F64:
    """One row against the weights, its operands rounded as the codec demands."""
    if codec in _FLOATS:
        return dense_product(matrix, round_bf16(row) if codec in _ROUNDED else row)
    return dense_product(matrix, round_quantised(row, values_of_a_scale(codec, row.size)))
