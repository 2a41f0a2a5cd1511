"""A model with some of its matrices in other kinds, and how far its outputs are from its own.

The model is a GGUF file of F16 or F32, kinds whose products round nothing on the way: with integer
activations every change anywhere rounds all that comes after it differently, and this noise, which
a mix has once, would be counted for each of its matrices. So a matrix alone is measured with what
its kind makes of its values, as floats; a whole mix as it will be served, in its own kinds.

A variant shares all packed matrices that it does not change. Logits of the model itself are
computed once, and lie in a file without a name while this is open.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from headrace.config.settings import EngineConfig
from headrace.eval.divergence import log_softmax, row_divergences
from headrace.eval.windows import WindowRunner
from headrace.models import Model, load_model
from headrace.ops.experts import ExpertWeight
from headrace.ops.interface import LinearWeight, Ops
from headrace.weights.codecs import Codec
from headrace.weights.gguf.checkpoint import checkpoint_of_gguf
from headrace.weights.gguf.file import GGUFFile
from headrace.weights.quantize.importance import ImportanceFile
from headrace.weights.quantize.recode import recoded
from headrace.weights.tensors.source import source_of_tensor
from headrace.weights.tensors.tensor import Tensor

Parts = Sequence[Tensor]
Floats = npt.NDArray[np.float64]


class Variants:
    """Variants of one model over some windows of text."""

    def __init__(
        self,
        file: GGUFFile,
        ops: Ops,
        windows: Sequence[Sequence[int]],
        importance: ImportanceFile | None,
        *,
        folder: Path,
        threads: int,
    ) -> None:
        """file: in F16 or F32. windows: all of one length. folder: where there is room for the
        model's logits, float32 for each of the scored positions and each token of the vocabulary.
        """
        self._file, self._windows, self._importance = file, windows, importance
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "variants")
        self._ops = _SharingOps(ops)
        model = load_model(checkpoint_of_gguf(file), cast(Ops, self._ops))
        self._ops.share = False
        scored = sum(len(window) - 1 - len(window) // 2 for window in windows)
        self._stored = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._logits: npt.NDArray[np.float32] = np.memmap(
            self._stored, np.float32, "w+", shape=(scored, model.vocab_size)
        )
        self._ends = []
        at = 0
        runner = self._runner(model)
        for index, window in enumerate(windows):
            for piece in runner.run(index, window):
                logits = piece.values
                self._logits[at : at + len(logits)] = logits
                at += len(logits)
            self._ends.append(at)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown()
        self._stored.close()

    def of_matrices(self, kinds: Mapping[str, Codec], windows: Sequence[int]) -> Floats:
        """KL(model || variant) of every scored position of these windows, in nats, float64[n],
        where these tensors hold what the kinds make of their values.
        """
        tensors = dict(self._file.tensors)
        for name, codec in kinds.items():
            stored = tensors[name]
            rounded = self._recoded(stored, codec)
            rows = stored.codec.encode(codec.decode(rounded.data))
            tensors[name] = replace(stored, data=rows)
        return self._divergences(tensors, windows)

    def of_mix(self, kinds: Mapping[str, Codec], windows: Sequence[int]) -> Floats:
        """The same where these tensors are stored and computed in the kinds."""
        changed = {name: self._recoded(self._file.tensors[name], kinds[name]) for name in kinds}
        return self._divergences({**self._file.tensors, **changed}, windows)

    def _divergences(self, tensors: Mapping[str, Tensor], windows: Sequence[int]) -> Floats:
        file = replace(self._file, tensors=tensors)
        runner = self._runner(load_model(checkpoint_of_gguf(file), cast(Ops, self._ops)))
        found = []
        for index in windows:
            at = self._ends[index - 1] if index else 0
            for piece in runner.run(index, self._windows[index]):
                logits = piece.values
                base = log_softmax(self._logits[at : at + len(logits)])
                found.append(row_divergences(base, log_softmax(logits)))
                at += len(logits)
        return np.concatenate(found)

    def _runner(self, model: Model) -> WindowRunner:
        # Rounded keys and values would add their own noise to what a matrix costs.
        context = len(self._windows[0])
        cache = EngineConfig(kv_cache_dtype="f32")
        return WindowRunner(model, cast(Ops, self._ops), context, cache=cache)

    def _recoded(self, tensor: Tensor, codec: Codec) -> Tensor:
        columns = None
        if self._importance is not None and codec.takes_importance:
            sums = self._importance.sums.get(tensor.name)
            columns = None if sums is None else sums.importance()
        source = source_of_tensor(tensor, tensor.name, tensor.codec)
        pieces = recoded(source, codec, columns, self._pool, self._threads).pieces()
        data = np.concatenate(list(pieces)).reshape(-1, codec.row_bytes(tensor.shape[-1]))
        return Tensor(tensor.name, tensor.shape, codec, data)


class _SharingOps:
    """A backend that packs a matrix of the same stored bytes once; all else is its own."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._packed: dict[Any, Any] = {}
        self.share = True
        """Whether what is packed now is kept for those that come."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def linear_weight(
        self, parts: Parts, *, bias: Sequence[Tensor | None] | None = None
    ) -> LinearWeight:
        key = _place(parts), bias is None or _place([part for part in bias if part is not None])
        found = self._packed.get(key)
        if found is None:
            found = self._ops.linear_weight(parts, bias=bias)
            if self.share:
                self._packed[key] = found
        return cast(LinearWeight, found)

    def expert_weight(
        self,
        experts: Sequence[Parts],
        *,
        bias: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> ExpertWeight:
        key = tuple(map(_place, experts))
        found = self._packed.get(key)
        if found is None:
            found = self._ops.expert_weight(experts, bias=bias)
            if self.share:
                self._packed[key] = found
        return cast(ExpertWeight, found)


def _place(parts: Parts) -> tuple[Any, ...]:
    """What tells packed matrices apart: where their bytes lie, which stay mapped meanwhile."""
    return tuple(
        (
            part.name, part.codec.name, part.shape, part.data.ctypes.data,
            None if part.row_order is None else part.row_order.tobytes(),
        )
        for part in parts
    )  # fmt: skip
