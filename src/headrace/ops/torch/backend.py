"""`TorchOps`: the operations on tensors of a device.

Arrays are float32 tensors of the device; ids, positions and tables come as NumPy arrays and are
copied there. What is computed is what docs/kernels.md defines, with rounding of its own
(docs/gpu.md): operands are rounded as weights demand, and a row's result follows from that row.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.batch_checks import check_blocks, check_masks
from headrace.ops.device import Fault
from headrace.ops.experts import ExpertMLP, Routes, Routing
from headrace.ops.kv import (
    AttentionShape,
    BoundBatch,
    KVCacheArrays,
    KVCacheSpec,
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
from headrace.ops.sampling_rows import (
    LogitsEdit,
    LogprobQuery,
    SamplingRows,
    TopLogprobs,
)
from headrace.ops.shared import check_factors, check_ids, check_rotation
from headrace.ops.torch import attention, mixtures, rows, sampling
from headrace.ops.torch import routing as routed
from headrace.ops.torch.attention import Terms
from headrace.ops.torch.batch import DeviceBatch
from headrace.ops.torch.checks import (
    check_layer,
    check_rows,
    check_shape,
    check_vector,
)
from headrace.ops.torch.device import fault_of
from headrace.ops.torch.kv_pool import KVPool, new_pool
from headrace.ops.torch.matrices import Matrix
from headrace.ops.torch.recording import (
    CudaTape,
    HostTape,
    NotRecordableError,
    RecordedStep,
    Tape,
)
from headrace.ops.torch.transfer import rows_on_host, staged
from headrace.ops.torch.weights import Linear, TorchWeights

F32: TypeAlias = torch.Tensor
Ids = npt.NDArray[np.int32]

logger = logging.getLogger(__name__)


class TorchOps(TorchWeights):
    """The torch backend on one device.

    What a step binds is on the device until the next one does: its positions are copied once, and
    not for each layer.
    """

    _step: DeviceBatch | None = None
    _recorded: DeviceBatch | None = None
    """While a step is recorded: its batch."""
    records = False
    """Whether steps may be recorded on a processor too, which tests do and saves no time there."""
    overlaps = False
    """Whether a processor passes for a device that computes beside the host, which tests do."""
    _graph_pool: Any = None

    @property
    def is_asynchronous(self) -> bool:
        return self.overlaps or self.device.type == "cuda"

    def host(self, x: torch.Tensor) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = x.cpu().numpy()
        return values

    def fault_of(self, error: Exception) -> Fault | None:
        return fault_of(error, self.device)

    def wait_for(self, x: torch.Tensor) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream(x.device).synchronize()

    def release_memory(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def host_rows(self, arrays: Sequence[torch.Tensor]) -> list[npt.NDArray[Any]]:
        return rows_on_host(arrays)

    def from_host(self, values: npt.NDArray[np.float32]) -> torch.Tensor:
        return staged(values, self.device)

    def kv_cache(self, spec: KVCacheSpec) -> KVCacheArrays:
        return KVCacheArrays(spec, new_pool(spec, self.device))

    def _bound(self, batch: RaggedBatch, kv: KVCacheArrays) -> DeviceBatch:
        prepared = self._recorded
        if prepared is None or batch.positions is not prepared.host.positions:
            prepared = DeviceBatch.of(batch, self.device)
        self._step = prepared
        return prepared

    @property
    def recording(self) -> Literal["none", "sizes"]:
        return "sizes" if self.records or self.device.type == "cuda" else "none"

    def record_run(
        self, run: Run, batch: RaggedBatch, inputs: Sequence[F32] = ()
    ) -> tuple[Sequence[F32], RecordedStep | None]:
        if self.recording == "none" or inputs:
            return run(batch, inputs), None
        on_cuda = self.device.type == "cuda"
        prepared = self._recorded = DeviceBatch.of(batch, self.device)
        outputs: Sequence[F32] = ()
        try:
            outputs = run(batch, ())  # kernels are compiled, and the layout of the batch is made
            prepared.begin_again()
            if on_cuda and self._graph_pool is None:
                self._graph_pool = torch.cuda.graph_pool_handle()
            tape: Tape = CudaTape(self._graph_pool) if on_cuda else HostTape()
            return outputs, RecordedStep(prepared, tape, tape.record(lambda: run(batch, ())))
        except RuntimeError as error:  # NotRecordableError, or what CUDA says of it
            if self.fault_of(error) is not None:
                raise
            logger.warning("steps are not recorded: %s", next(iter(str(error).splitlines()), ""))
            return outputs or run(batch, ()), None
        finally:
            self._recorded = None

    def _device_batch(self, batch: RaggedBatch, kv: KVCacheArrays) -> DeviceBatch:
        if isinstance(batch, BoundBatch) and batch.kv is kv:
            bound: DeviceBatch = batch.bound
            return bound
        return DeviceBatch.of(batch, self.device)

    def _ids(self, ids: npt.NDArray[Any]) -> torch.Tensor:
        """int64, to index with."""
        step = self._step
        if step is not None:
            if ids is step.host.positions:
                return step.positions
            if ids is step.host.token_ids:
                return step.token_ids
            if ids is step.host.logit_rows:
                return step.logit_rows
        self._check_not_recorded("ids that are not of the batch")
        return staged(ids, self.device).long()

    def _check_not_recorded(self, what: str) -> None:
        """Raise NotRecordableError while a step is recorded, in which `what` would not change."""
        if self._recorded is not None:
            raise NotRecordableError(f"a step takes {what} of the host")

    def embedding(
        self,
        weight: EmbeddingWeight,
        token_ids: Ids,
        *,
        scale: float = 1.0,
        residual: F32 | None = None,
    ) -> F32:
        check_ids("token id", token_ids, weight.rows)
        table: Matrix = weight.packed
        values = table.rows(self._ids(token_ids))
        if scale != 1.0:
            values = values * scale
        return values if residual is None else values + residual

    def norm(self, x: F32, norm: Norm, *, residual: F32 | None = None) -> F32:
        check_rows("x", x, len(norm.weight))
        if self.kernels:
            from headrace.ops.torch.triton import rows as kernel

            return kernel.normed(x, norm, torch.empty_like(x), residual=residual)
        normed = rows.normed(x, norm)
        return normed if residual is None else normed + residual

    def norm_columns(self, x: F32, start: int, norm: Norm, *, groups: int = 1) -> None:
        width = len(norm.weight)
        if not 0 <= start <= x.shape[1] - width or groups < 1 or width % groups:
            raise ValueError(
                f"columns [{start}, {start + width}) in {groups} groups are not those of rows "
                f"of {x.shape[1]}"
            )
        if self.kernels:
            from headrace.ops.torch.triton import rows as kernel

            part = x[:, start : start + width]
            kernel.normed(part, norm, part, groups=groups)
            return
        columns = x[:, start : start + width].unflatten(1, (groups, -1))
        bias = None if norm.bias is None else norm.bias.unflatten(0, (groups, -1))
        of_groups = Norm(norm.weight.unflatten(0, (groups, -1)), norm.eps, norm.kind, bias)
        columns.copy_(rows.normed(columns, of_groups))

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
            check_rows("residual", residual, weight.out_features, len(x))
        linear: Linear = weight.packed
        x = x if norm is None else self.norm(x, norm)
        out = mixtures.times(x, linear)
        if scale != 1.0:
            out = out * scale
        return out if residual is None else out + residual

    def head_linear(
        self, x: F32, weight: HeadWeight, *, kept: int = 0, beside: F32 | None = None
    ) -> F32:
        if kept < 0:
            raise ValueError(f"kept {kept} is negative; it is a number of columns")
        heads: tuple[Linear, ...] = weight.packed
        width = kept + weight.in_features
        check_rows("x", x, weight.num_heads * width)
        parts = []
        for head, linear in enumerate(heads):
            columns = x[:, head * width : (head + 1) * width]
            parts += [columns[:, :kept], mixtures.times(columns[:, kept:].contiguous(), linear)]
        if beside is not None:
            if beside.dtype != torch.float32 or beside.ndim != 2 or len(beside) != len(x):
                raise ValueError(
                    f"beside must be float32[{len(x)}, columns], not "
                    f"{beside.dtype}{list(beside.shape)}"
                )
            parts.append(beside)
        return torch.cat(parts, dim=1)

    def route(
        self,
        logits: F32,
        routing: Routing,
        *,
        bias: F32 | None = None,
        factors: F32 | None = None,
    ) -> Routes:
        check_rows("logits", logits, routing.num_experts)
        check_factors(factors, routing)
        check_vector("bias", bias, routing.num_experts)
        if bias is not None and routing.score == "sparsemixer":
            raise ValueError("bias: the score sparsemixer takes no selection bias")
        routes = Routes(*routed.route(logits, routing, bias))
        return routes if factors is None else routes.times(factors[routes.experts.long()])

    def experts(
        self,
        x: F32,
        mlp: ExpertMLP,
        routes: Routes,
        *,
        residual: F32 | None = None,
        scale: float = 1.0,
    ) -> F32:
        return mixtures.run(x, mlp, routes, residual, scale)

    def rope(
        self,
        qkv: F32,
        shape: AttentionShape,
        table: RopeTable,
        positions: Ids,
        *,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> None:
        check_shape(qkv, shape)
        check_rotation(len(qkv), shape, table, positions, q_norm, k_norm)
        heads = qkv[:, : (shape.num_heads + shape.num_kv_heads) * shape.head_dim]
        heads = heads.unflatten(1, (-1, shape.head_dim))
        for norm, part in (
            (q_norm, slice(shape.num_heads)),
            (k_norm, slice(shape.num_heads, None)),
        ):
            if norm is not None:
                heads[:, part] = rows.normed(heads[:, part], norm)
        at = self._ids(positions)
        rows.rotate(heads, table.cos[at], table.sin[at])

    def kv_write(
        self, qkv: F32, shape: AttentionShape, kv: KVCacheArrays, layer: int, batch: RaggedBatch
    ) -> None:
        place = check_layer(qkv, shape, kv.spec, layer, batch)
        bound = self._device_batch(batch, kv)
        _check_once(bound, shape, kv.spec, place)
        attention.write(qkv, shape, kv.arrays, place, bound, kernels=self.kernels)

    def rope_and_write(
        self,
        qkv: F32,
        shape: AttentionShape,
        table: RopeTable,
        kv: KVCacheArrays,
        layer: int,
        batch: RaggedBatch,
        *,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> None:
        if self.kernels:
            from headrace.ops.torch.triton.rope import Rotation

            check_shape(qkv, shape)
            check_rotation(len(qkv), shape, table, batch.positions, q_norm, k_norm)
            place = check_layer(qkv, shape, kv.spec, layer, batch)
            bound = self._device_batch(batch, kv)
            _check_once(bound, shape, kv.spec, place)
            rotation = Rotation(table.cos, table.sin, bound.positions, q_norm, k_norm)
            if attention.written_by_kernel(qkv, shape, kv.arrays, place, bound, rotation):
                return
        super().rope_and_write(qkv, shape, table, kv, layer, batch, q_norm=q_norm, k_norm=k_norm)

    def kv_copy(self, kv: KVCacheArrays, pairs: npt.NDArray[np.int32]) -> None:
        check_ids("block", pairs, kv.spec.num_blocks)
        pool: KVPool = kv.arrays
        sources, targets = self._ids(pairs).unbind(dim=1)
        pool.pages[targets] = pool.pages[sources]

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
        place = check_layer(qkv, shape, kv.spec, layer, batch)
        check_vector("sinks", sinks, shape.num_heads)
        check_vector("slopes", slopes, shape.num_heads)
        if masks is not None:
            self._check_not_recorded("masks")
        terms, bound = Terms(sinks, slopes, masks), self._device_batch(batch, kv)
        _check_once(bound, shape, kv.spec, place, masks)
        modes = {"kernels": self.kernels, "reproducible": self.reproducible}
        return attention.attend(qkv, shape, kv.arrays, place, bound, terms, **modes)

    def gated_activation(self, gate_up: F32, kind: Activation, *, limit: float = 0.0) -> F32:
        if gate_up.shape[1] % 2:
            raise ValueError(f"gate_up has an odd width {gate_up.shape[1]}")
        gate, up = gate_up.chunk(2, dim=1)
        return rows.gated(gate, up, kind, limit)

    def activation(self, x: F32, kind: Activation) -> F32:
        return rows.activated(x, kind)

    def softcap(self, x: F32, cap: float) -> F32:
        if not 0 < cap < np.inf:
            raise ValueError(f"cap {cap} is not in (0, inf)")
        return cap * torch.tanh(x / cap)

    def take_rows(self, x: F32, rows: Ids) -> F32:
        check_ids("row", rows, len(x))
        return x[self._ids(rows)]

    def scale_rows(self, x: F32, factors: npt.NDArray[np.float32], *, columns: int) -> None:
        if not 0 <= columns <= x.shape[1] or factors.shape != (len(x),):
            raise ValueError(
                f"{columns} columns and factors of shape {factors.shape} are not those of "
                f"{len(x)} rows of {x.shape[1]}"
            )
        self._check_not_recorded("factors")
        x[:, :columns] *= staged(factors, self.device)[:, None]

    def scale_rows_at(self, x: F32, table: F32, rows: Ids, *, columns: int) -> None:
        if not 0 <= columns <= x.shape[1] or len(rows) != len(x):
            raise ValueError(f"{columns} columns of {len(rows)} rows are not of {list(x.shape)}")
        check_ids("row", rows, len(table))
        x[:, :columns] *= table[self._ids(rows)]

    def gate_heads(self, x: F32, gates: F32) -> None:
        count, heads = gates.shape
        if len(x) != count or not heads or x.shape[1] % heads:
            raise ValueError(f"gates of {heads} heads do not fit rows of {x.shape[1]}")
        x.unflatten(1, (heads, -1)).mul_((1 / (1 + torch.exp(-gates)))[..., None])

    def concat(self, parts: Sequence[F32]) -> F32:
        return torch.cat(list(parts), dim=1)

    def stacked(self, parts: Sequence[F32]) -> F32:
        return torch.cat(list(parts), dim=0)

    def spread(self, x: F32, columns: npt.NDArray[np.int64], width: int) -> F32:
        wide = x.new_full((len(x), width), -torch.inf)
        wide[:, self._ids(columns)] = x
        return wide

    def columns(self, x: F32, start: int, stop: int) -> F32:
        return x[:, start:stop].contiguous()

    def added(self, x: F32, y: F32) -> F32:
        return x + y

    def widened(self, x: F32, width: int) -> F32:
        return torch.nn.functional.pad(x, (0, width - x.shape[1]))

    def adjust(self, logits: F32, adjustments: Sequence[LogitsEdit]) -> None:
        sampling.adjust(logits, adjustments)

    def begin_draw(
        self,
        logits: F32,
        rows: SamplingRows,
        num_tokens: int,
        wanted: LogprobQuery | None = None,
    ) -> sampling.TorchDraw:
        return sampling.begin(logits, rows, num_tokens, wanted)

    def sample(self, logits: F32, rows: SamplingRows, num_tokens: int) -> npt.NDArray[np.int32]:
        return sampling.sample(logits, rows, num_tokens)

    def top_logprobs(self, logits: F32, chosen: Ids, k: int, num_tokens: int) -> TopLogprobs:
        return sampling.top_logprobs(logits, chosen, k, num_tokens)


def _check_once(
    bound: DeviceBatch,
    shape: AttentionShape,
    spec: KVCacheSpec,
    place: LayerPlace,
    masks: npt.NDArray[np.uint64] | None = None,
) -> None:
    """Loops over requests and tokens, for the first of the layers that see alike."""
    seen = (shape.window, shape.chunk)
    key = ("blocks", place.table, spec.block_size, spec.num_blocks, *seen)
    bound.once(key, lambda: check_blocks(shape, spec, place, bound.host))
    if masks is not None:

        def checked() -> object:
            check_masks(masks, shape, bound.host)
            return masks

        bound.once(("checked masks", id(masks), *seen), checked)
