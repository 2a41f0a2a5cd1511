"""The operations a model is computed with, and the shapes they agree on.

A backend implements `Ops`. Arrays belong to the backend: models pass them from one operation to
the next and never look inside (NumPy on the CPU, tensors on a device); all that others may ask of
one is its `shape` and its `len`, and `Ops.host` gives its values. Activations are float32[N, width]
where N counts the tokens of a ragged batch: the new tokens of every request of the step, one after
another. What the engine makes for a step (ids, positions, tables, rows, factors, masks) are NumPy
arrays on every backend, which takes them where it computes.

One arithmetic: a backend's result for one token never depends on N, on the other rows, on the
number of threads or on how a prompt was cut into chunks. docs/kernels.md defines it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.ops.device import DeviceOps
from headrace.ops.experts import ExpertCacheStats, ExpertMLP, ExpertWeight, Routes, Routing
from headrace.ops.kv import (
    AttentionShape,
    BoundBatch,
    KVCacheArrays,
    KVCacheSpec,
    RaggedBatch,
)
from headrace.ops.operands import (
    Activation,
    Array,
    EmbeddingWeight,
    HeadWeight,
    HostIds,
    LinearWeight,
    Norm,
    RopeTable,
)
from headrace.ops.recording import RecordingOps
from headrace.ops.sampling import SamplingOps
from headrace.weights.tensors.tensor import Tensor


class Ops(DeviceOps, RecordingOps, SamplingOps):
    """A backend. Instances hold a thread pool at most; weights and caches are owned by callers.

    level: the instruction level in use ("reference" where there is none); num_threads: compute
    threads in use.
    """

    name: str
    level: str
    num_threads: int

    @property
    def expert_layers(self) -> int:
        """Layers, from the first on, whose experts are computed by another backend; see
        ops/placement.py."""
        return 0

    def expert_cache_stats(self) -> ExpertCacheStats | None:
        """Figures of the cache of experts; None where all experts are packed at load."""
        return None

    # weights, once at load

    @abstractmethod
    def vector(self, tensor: Tensor, *, offset: float = 0.0) -> Array:
        """A 1-d tensor as f32[n], with `offset` added."""

    @abstractmethod
    def linear_weight(
        self, parts: Sequence[Tensor], *, bias: Sequence[Tensor | None] | None = None
    ) -> LinearWeight:
        """Matrices (out_i, in) of one codec and one `in`, fused by stacking their rows.

        Raises ValueError where codecs or widths differ (the caller then keeps them apart).
        """

    @abstractmethod
    def expert_weight(
        self,
        experts: Sequence[Sequence[Tensor]],
        *,
        bias: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> ExpertWeight:
        """One matrix of every expert: experts[e] is what linear_weight takes as `parts`.

        Raises ValueError where codecs or widths differ, within an expert or between experts, and
        where experts have unequal numbers of rows.
        """

    @abstractmethod
    def head_weight(self, heads: Sequence[Tensor]) -> HeadWeight:
        """A matrix (out, in) of every head; ValueError where codecs or shapes differ."""

    @abstractmethod
    def embedding_weight(self, tensor: Tensor) -> EmbeddingWeight:
        """A table (rows, width) of any codec; it may stay mapped."""

    @abstractmethod
    def rope_table(
        self, inv_freq: npt.NDArray[np.float64], positions: int, *, attention_factor: float = 1.0
    ) -> RopeTable:
        """cos/sin of position * inv_freq, times `attention_factor`, for positions [0, positions).

        Angles are computed in float64 and rounded once to float32.
        """

    @abstractmethod
    def kv_cache(self, spec: KVCacheSpec) -> KVCacheArrays:
        """Zeroed storage for `spec`; ValueError for an unsupported block_size or head_dim."""

    # one step

    def bind(self, batch: RaggedBatch, kv: KVCacheArrays) -> BoundBatch:
        """The batch for all layers of a step over `kv`: its arrays are checked once, not in each.

        Operations take a batch that is not bound too, and bind it for themselves. Arrays that are
        changed later change nothing. Raises ValueError where the arrays do not agree; block tables
        are checked when a layer needs them.
        """
        fields = (batch.token_ids, batch.positions, batch.query_start, batch.block_tables)
        return BoundBatch(*fields, batch.logit_rows, kv, self._bound(batch, kv))

    def _bound(self, batch: RaggedBatch, kv: KVCacheArrays) -> Any:
        """What the backend keeps of a batch for the layers of a step."""
        del batch, kv

    @abstractmethod
    def embedding(
        self,
        weight: EmbeddingWeight,
        token_ids: HostIds,
        *,
        scale: float = 1.0,
        residual: Array | None = None,
    ) -> Array:
        """residual + scale * row of the table, decoded: f32[N, width]."""

    @abstractmethod
    def norm(self, x: Array, norm: Norm, *, residual: Array | None = None) -> Array:
        """residual + the norm of every row: f32[N, width]."""

    @abstractmethod
    def norm_columns(self, x: Array, start: int, norm: Norm, *, groups: int = 1) -> None:
        """Norm columns [start, start + len(weight)) of every row of x in place.

        groups: equal parts of these columns whose mean and variance are taken apart.
        """

    @abstractmethod
    def linear(
        self,
        x: Array,
        weight: LinearWeight,
        *,
        norm: Norm | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """residual + scale * (W norm(x) + bias), f32[N, out]; parts that are None are left out.

        Rounded after the bias, after the scale (unless it is 1) and after the residual.
        """

    @abstractmethod
    def head_linear(
        self, x: Array, weight: HeadWeight, *, kept: int = 0, beside: Array | None = None
    ) -> Array:
        """Each head's columns of x times its matrix: f32[N, heads * (kept + out) + len(beside)].

        x: f32[N, heads * (kept + in)]. The first `kept` columns of a head stay as they are, before
        its product. beside: f32[N, m], columns that stand after those of the last head.
        A product has the bits of `linear` of that head's matrix and those columns.
        """

    @abstractmethod
    def route(
        self,
        logits: Array,
        routing: Routing,
        *,
        bias: Array | None = None,
        factors: Array | None = None,
    ) -> Routes:
        """The experts of every token and their weights, of router logits f32[N, num_experts].

        bias: f32[num_experts], finite, added to the scores for the choice only. factors:
        f32[num_experts], what the weights of an expert are multiplied by in the end, rounded.
        """

    @abstractmethod
    def experts(
        self,
        x: Array,
        mlp: ExpertMLP,
        routes: Routes,
        *,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """residual + scale * the weighted sum of the chosen experts' MLPs of x: f32[N, hidden].

        An expert's MLP has the bits of `linear`, `gated_activation` and `linear` of its matrices
        and that row. Its product with the token's weight is rounded, then the sum, in the order
        of choice; then `scale` (unless it is 1) and `residual`. With `mlp.weigh_input` the row
        is multiplied by the weight before, and the results are added as they are.
        """

    @abstractmethod
    def rope(
        self,
        qkv: Array,
        shape: AttentionShape,
        table: RopeTable,
        positions: HostIds,
        *,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> None:
        """Norm (RMS norms, where given, over head_dim) and rotate q and k heads of qkv in place.

        qkv: f32[N, shape.row_width]. Dimension i is rotated with i + rotary_dim / 2 ("half"
        layout); dimensions past rotary_dim are left alone.
        """

    @abstractmethod
    def kv_write(
        self, qkv: Array, shape: AttentionShape, kv: KVCacheArrays, layer: int, batch: RaggedBatch
    ) -> None:
        """Store the k and v heads of every new token in its slot of `layer`.

        Of a latent layer only k heads: its rows have no others.
        """

    def rope_and_write(
        self,
        qkv: Array,
        shape: AttentionShape,
        table: RopeTable,
        kv: KVCacheArrays,
        layer: int,
        batch: RaggedBatch,
        *,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> None:
        """`rope` by the positions of the batch and then `kv_write`, which a backend may compute at
        once."""
        self.rope(qkv, shape, table, batch.positions, q_norm=q_norm, k_norm=k_norm)
        self.kv_write(qkv, shape, kv, layer, batch)

    @abstractmethod
    def kv_copy(self, kv: KVCacheArrays, pairs: npt.NDArray[np.int32]) -> None:
        """Copy whole blocks, K and V of all layers. pairs: int32[n, 2], source and target.

        No target is another pair's source or target. ValueError for a block that is not there.
        """

    @abstractmethod
    def kv_populate(self, kv: KVCacheArrays, num_blocks: int, *, wait: bool = False) -> None:
        """Have memory of the blocks below `num_blocks` ready before they are written: beside what
        else is done, or `wait` for it. Changes no content; a backend whose memory is there from
        the beginning does nothing."""

    @abstractmethod
    def paged_attention(
        self,
        qkv: Array,
        shape: AttentionShape,
        kv: KVCacheArrays,
        layer: int,
        batch: RaggedBatch,
        *,
        sinks: Array | None = None,
        slopes: Array | None = None,
        masks: npt.NDArray[np.uint64] | None = None,
    ) -> Array:
        """Causal attention of every new token over its request's cache: f32[N, output_width].

        A token at position p sees an interval that ends with p: from 0, from p + 1 - window or from
        the last multiple of `chunk`, the latest of them; all of it is already written.
        sinks: f32[heads], scores that join the softmax of each head and have no value
            (arXiv 2309.17453; gpt-oss).
        slopes: f32[heads]; ALiBi (arXiv 2108.12409): slope * (position - p) is added to each score,
            after the softcap.
        masks: uint64[N, spans]; of the interval only those positions 64 s + b are seen whose bit b
            of masks[token, s] is set; at least one.
        Raises ValueError where arrays do not agree and where a token sees nothing.
        """

    @abstractmethod
    def gated_activation(self, gate_up: Array, kind: Activation, *, limit: float = 0.0) -> Array:
        """act(gate) * up of f32[N, 2 F] (gate first): f32[N, F].

        limit: above 0, act(gate) is at most it and up in [-limit, limit], before they are
            multiplied; swiglu_clamped has limits of its own and takes none.
        Raises ValueError for a kind that is unknown and a limit that is out of range.
        """

    @abstractmethod
    def activation(self, x: Array, kind: Activation) -> Array:
        """act(x) of f32[N, F]."""

    @abstractmethod
    def softcap(self, x: Array, cap: float) -> Array:
        """cap * tanh(x / cap) of f32[N, F], cap > 0."""

    @abstractmethod
    def take_rows(self, x: Array, rows: HostIds) -> Array:
        """x[rows]: f32[L, width]."""

    @abstractmethod
    def scale_rows(self, x: Array, factors: npt.NDArray[np.float32], *, columns: int) -> None:
        """Multiply the first `columns` values of every row of f32[N, width] by factors f32[N],
        in place; each product is rounded once.
        """

    def scale_rows_at(self, x: Array, table: Array, rows: HostIds, *, columns: int) -> None:
        """`scale_rows` by the factors that rows of a table f32[P, 1] have. For NumPy arrays as it
        stands."""
        self.scale_rows(x, np.ascontiguousarray(table[rows, 0]), columns=columns)

    @abstractmethod
    def gate_heads(self, x: Array, gates: Array) -> None:
        """Multiply each head of f32[N, heads * width] by the sigmoid of its gate f32[N, heads], in
        place. Raises ValueError where heads do not divide the rows.
        """

    def concat(self, parts: Sequence[Array]) -> Array:
        """Parts f32[N, width_i] side by side: f32[N, sum of widths].

        Joins the outputs of projections that could not be fused. For NumPy arrays as it stands.
        """
        return np.concatenate(parts, axis=1)

    def stacked(self, parts: Sequence[Array]) -> Array:
        """Parts f32[N_i, width] one above the other: f32[sum of N_i, width]. For NumPy arrays as it
        stands.
        """
        return np.concatenate(parts, axis=0)

    def spread(self, x: Array, columns: npt.NDArray[np.int64], width: int) -> Array:
        """Column i of f32[N, D] at columns[i] of f32[N, width], and -inf in all others. columns:
        int[D], each once. For NumPy arrays as it stands.
        """
        wide = np.full((x.shape[0], width), -np.inf, np.float32)
        wide[:, columns] = x
        return wide

    def columns(self, x: Array, start: int, stop: int) -> Array:
        """Columns [start, stop) of [N, width], of its type: [N, stop - start]. For NumPy arrays as
        it stands.
        """
        return np.ascontiguousarray(x[:, start:stop])

    def added(self, x: Array, y: Array) -> Array:
        """x + y, both f32[N, width]. For NumPy arrays as it stands."""
        return np.add(x, y)

    def widened(self, x: Array, width: int) -> Array:
        """x with zeros behind the values of each row: f32[N, width]. For NumPy arrays as it
        stands.
        """
        wide = np.zeros((x.shape[0], width), np.float32)
        wide[:, : x.shape[1]] = x
        return wide
