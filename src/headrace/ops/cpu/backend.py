"""`CpuOps`: the operations on CPU kernels in C++ (`native/`), with a thread pool of its own.

Arrays are C-contiguous NumPy arrays. This file gives shapes and memory to kernels and nothing
else: what they compute is defined in docs/kernels.md, arguments are checked by the native module.
The interpreter lock is released while kernels run. One call at a time uses the pool; calls from
other threads wait. os.fork() copies no threads: an instance with more than one raises
RuntimeError in the child, which can make its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from headrace.ops import adjustment
from headrace.ops.cpu import _native
from headrace.ops.cpu.recording import (
    Arena,
    NotRecordableError,
    Recording,
    of_this_thread,
)
from headrace.ops.cpu.sampling import naming_bad_rows, native_chains
from headrace.ops.cpu.weights import CpuWeights
from headrace.ops.experts import ExpertMLP, Routes, Routing
from headrace.ops.kv import (
    AttentionShape,
    BoundBatch,
    KVCacheArrays,
    KVCacheSpec,
    KVCodec,
    LayerPlace,
    RaggedBatch,
)
from headrace.ops.operands import (
    Activation,
    EmbeddingWeight,
    HeadWeight,
    LinearWeight,
    Norm,
    RopeTable,
)
from headrace.ops.recording import Run
from headrace.ops.sampling_rows import LogitsEdit, SamplingRows, TopLogprobs
from headrace.ops.shared import (
    check_factors,
    check_head_norm,
    check_ids,
    check_value_dim,
    f32_rope_table,
    f32_rows,
    is_centred,
)
from headrace.weights.tensors.scaled_tensor import ScaledTensor

F32 = npt.NDArray[np.float32]

logger = logging.getLogger(__name__)


class CpuOps(CpuWeights):
    """The cpu backend.

    level: "auto" (the best this machine can run) or the name of one; `levels()` lists them.
    threads: compute threads, the calling one included; None means the CPUs this process may use.
    expert_cache_bytes: None packs all experts at load. With a number, experts that are given from
    then on stay where they are stored (a mapped file) and are packed when a step needs them, into
    memory of that size at most; the least recently used ones make room. Results are the same. A
    layer's only expert is packed at load all the same.
    Raises ConfigError for a level this machine cannot run, for a number of threads outside
    [1, 1024] and for a negative cache.
    """

    _recording: Recording | None = None
    """The one that is made."""

    @property
    def recording(self) -> Literal["shapes"]:
        return "shapes"

    def record_run(
        self, run: Run, batch: RaggedBatch, inputs: Sequence[F32] = ()
    ) -> tuple[Sequence[F32], Recording | None]:
        native, empty = self._native, self._empty
        if self._arena is None:
            self._arena = Arena()
        arena = self._arena
        arena.begin()
        recording = Recording(native, arena, batch, inputs)
        try:
            native.note_on(recording.tape)
            self._native = cast(_native.Backend, recording.notes)
            self._empty, self._recording = of_this_thread(arena.empty, empty), recording
            outputs = run(recording.batch, recording.inputs)
            recording.end(outputs)
        except NotRecordableError as error:
            logger.debug("a run is not recorded: %s", error)
        else:
            return outputs, recording
        finally:
            self._native, self._empty, self._recording = native, empty, None
            native.note_on(None)
        return run(batch, inputs), None

    def rope_table(
        self,
        inv_freq: npt.NDArray[np.float64],
        positions: int,
        *,
        attention_factor: float = 1.0,
    ) -> RopeTable:
        return f32_rope_table(inv_freq, positions, attention_factor)

    def kv_cache(self, spec: KVCacheSpec) -> KVCacheArrays:
        cache = _native.KvCache(
            [
                None if place is None else _place(place, *spec.codecs(place))
                for place in spec.places
            ],
            spec.block_size,
            spec.num_blocks,
        )
        return KVCacheArrays(spec, cache)

    def embedding(
        self,
        weight: EmbeddingWeight,
        token_ids: npt.NDArray[np.int32],
        *,
        scale: float = 1.0,
        residual: F32 | None = None,
    ) -> F32:
        if isinstance(weight.packed, ScaledTensor):
            check_ids("token id", token_ids, weight.rows)
            return f32_rows(weight.packed, token_ids, scale, residual)
        out = self._empty((len(token_ids), weight.width), np.float32)
        self._native.embedding(weight.packed, token_ids, out, scale, residual)
        return out

    def norm(self, x: F32, norm: Norm, *, residual: F32 | None = None) -> F32:
        out = self._empty(x.shape, np.float32)
        self._native.norm(x, out, norm.weight, norm.bias, norm.eps, is_centred(norm), residual)
        return out

    def norm_columns(self, x: F32, start: int, norm: Norm, *, groups: int = 1) -> None:
        self._native.norm_columns(
            x, start, norm.weight, norm.bias, norm.eps, is_centred(norm), groups
        )

    def linear(
        self,
        x: F32,
        weight: LinearWeight,
        *,
        norm: Norm | None = None,
        residual: F32 | None = None,
        scale: float = 1.0,
    ) -> F32:
        out = self._empty((x.shape[0], weight.out_features), np.float32)
        if weight.column_order is not None:
            if x.shape[1] != weight.in_features:
                raise ValueError(f"x: rows of {x.shape[1]}, must be {weight.in_features}")
            x = np.take(x if norm is None else self.norm(x, norm), weight.column_order, axis=1)
            norm = None
        if norm is None:
            self._native.linear(weight.packed, x, out, None, None, 0.0, False, residual, scale)
        else:
            self._native.linear(
                weight.packed,
                x,
                out,
                norm.weight,
                norm.bias,
                norm.eps,
                is_centred(norm),
                residual,
                scale,
            )
        return out

    def head_linear(
        self, x: F32, weight: HeadWeight, *, kept: int = 0, beside: F32 | None = None
    ) -> F32:
        more = 0 if beside is None else beside.shape[1]
        width = weight.num_heads * (kept + weight.out_features) + more
        out = self._empty((len(x), max(0, width)), np.float32)
        self._native.head_linear(weight.packed, x, kept, beside, out)
        return out

    def route(
        self,
        logits: F32,
        routing: Routing,
        *,
        bias: F32 | None = None,
        factors: F32 | None = None,
    ) -> Routes:
        check_factors(factors, routing)
        rule = _native.Routing(
            routing.num_experts,
            routing.experts_per_token,
            routing.score,
            routing.normalised,
            routing.epsilon,
            routing.scale,
            routing.num_groups,
            routing.chosen_groups,
            routing.group_score,
            routing.jitter,
        )
        shape = (len(logits), routing.experts_per_token)
        routes = Routes(self._empty(shape, np.int32), self._empty(shape, np.float32))
        self._native.route(rule, logits, bias, routes.experts, routes.weights)
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
        out = self._empty((len(x), mlp.down.out_features), np.float32)
        self._native.experts(
            mlp.gate_up.packed,
            mlp.down.packed,
            x,
            out,
            routes.experts,
            routes.weights,
            mlp.activation,
            mlp.limit,
            mlp.weigh_input,
            residual,
            scale,
        )
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
        check_head_norm("q_norm", q_norm)
        check_head_norm("k_norm", k_norm)
        self._native.rope(
            qkv,
            shape,
            table.cos,
            table.sin,
            positions,
            None if q_norm is None else q_norm.weight,
            0.0 if q_norm is None else q_norm.eps,
            None if k_norm is None else k_norm.weight,
            0.0 if k_norm is None else k_norm.eps,
        )

    def kv_write(
        self, qkv: F32, shape: AttentionShape, kv: KVCacheArrays, layer: int, batch: RaggedBatch
    ) -> None:
        self._native.kv_write(self._native_batch(batch, kv), layer, qkv, shape)

    def _bound(self, batch: RaggedBatch, kv: KVCacheArrays) -> _native.BoundBatch:
        if self._recording is not None:
            return self._recording.bind(batch, kv)
        return _native.BoundBatch(kv.arrays, batch.positions, batch.query_start, batch.block_tables)

    def _native_batch(self, batch: RaggedBatch, kv: KVCacheArrays) -> _native.BoundBatch:
        if isinstance(batch, BoundBatch) and batch.kv is kv:
            bound: _native.BoundBatch = batch.bound
            return bound
        return self._bound(batch, kv)

    def kv_copy(self, kv: KVCacheArrays, pairs: npt.NDArray[np.int32]) -> None:
        kv.arrays.copy_blocks(pairs)

    def kv_populate(self, kv: KVCacheArrays, num_blocks: int, *, wait: bool = False) -> None:
        kv.arrays.populate(num_blocks, wait)

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
        out = self._empty((qkv.shape[0], shape.output_width), np.float32)
        self._native.attention(
            self._native_batch(batch, kv), layer, qkv, out, shape, sinks, slopes, masks
        )
        return out

    def gated_activation(self, gate_up: F32, kind: Activation, *, limit: float = 0.0) -> F32:
        out = self._empty((gate_up.shape[0], gate_up.shape[1] // 2), np.float32)
        self._native.activation(gate_up, out, kind, True, limit)
        return out

    def activation(self, x: F32, kind: Activation) -> F32:
        out = self._empty(x.shape, np.float32)
        self._native.activation(x, out, kind, False, 0.0)
        return out

    def softcap(self, x: F32, cap: float) -> F32:
        out = self._empty(x.shape, np.float32)
        self._native.softcap(x, out, cap)
        return out

    def take_rows(self, x: F32, rows: npt.NDArray[np.int32]) -> F32:
        out = self._empty((len(rows), x.shape[1]), np.float32)
        self._native.take_rows(x, rows, out)
        return out

    def concat(self, parts: Sequence[F32]) -> F32:
        return self._joined(parts, axis=1)

    def stacked(self, parts: Sequence[F32]) -> F32:
        return self._joined(parts, axis=0)

    def _joined(self, parts: Sequence[F32], axis: int) -> F32:
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        out = self._empty((shape[0], shape[1]), np.float32)
        row = column = 0
        for part in parts:
            self._native.place(part, 0, out, row, column, part.shape[1])
            row += part.shape[0] * (axis == 0)
            column += part.shape[1] * (axis == 1)
        return out

    def columns(self, x: F32, start: int, stop: int) -> F32:
        if x.dtype != np.float32:
            return np.ascontiguousarray(x[:, start:stop])
        out = self._empty((len(x), stop - start), np.float32)
        self._native.place(x, start, out, 0, 0, stop - start)
        return out

    def added(self, x: F32, y: F32) -> F32:
        out = self._empty(x.shape, np.float32)
        self._native.add(x, y, out)
        return out

    def spread(self, x: F32, columns: npt.NDArray[np.int64], width: int) -> F32:
        out = self._empty((len(x), width), np.float32)
        self._native.spread(x, columns, out)
        return out

    def scale_rows(self, x: F32, factors: F32, *, columns: int) -> None:
        self._native.scale_rows(x, factors, columns)

    def scale_rows_at(
        self, x: F32, table: F32, rows: npt.NDArray[np.int32], *, columns: int
    ) -> None:
        factors = self.take_rows(table, rows).reshape(-1)
        self._native.scale_rows(x, factors, columns)

    def gate_heads(self, x: F32, gates: F32) -> None:
        self._native.gate_heads(x, gates)

    def adjust(self, logits: F32, adjustments: Sequence[LogitsEdit]) -> None:
        adjustment.adjust(logits, adjustments)

    def sample(self, logits: F32, rows: SamplingRows, num_tokens: int) -> npt.NDArray[np.int32]:
        ids = np.empty(len(logits), np.int32)
        with naming_bad_rows():
            self._native.sample(
                logits,
                num_tokens,
                rows.temperature,
                rows.top_k,
                rows.top_p,
                rows.min_p,
                rows.uniform,
                ids,
                native_chains(rows, *logits.shape) if rows.chains else None,
                rows.masks or None,
            )
        return ids

    def top_logprobs(
        self, logits: F32, chosen: npt.NDArray[np.int32], k: int, num_tokens: int
    ) -> TopLogprobs:
        if k < 0:
            raise ValueError(f"k {k} is not in [0, {num_tokens}], the number of tokens")
        count = len(logits)
        result = TopLogprobs(
            np.empty(count, np.float32),
            np.empty(count, np.int32),
            np.empty((count, k), np.int32),
            np.empty((count, k), np.float32),
        )
        with naming_bad_rows():
            self._native.top_logprobs(
                logits, num_tokens, chosen, result.chosen, result.rank, result.ids, result.values
            )
        return result


def _place(place: LayerPlace, k_codec: KVCodec, v_codec: KVCodec) -> _native.Place:
    check_value_dim(place)
    value_dim = place.value_dim or place.head_dim
    kv_heads, head_dim = place.num_kv_heads, place.head_dim
    near = place.near or (-1, 0)
    widths = (kv_heads, head_dim, value_dim, place.latent)
    scales = (place.k_scale, place.v_scale)
    return place.table, place.index, *widths, k_codec, v_codec, *near, *scales
