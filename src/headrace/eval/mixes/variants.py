"""A model in a mix of kinds, and how far its outputs are from its own.

A mix is measured as it will be served: with all of its matrices in their kinds, and the roundings
of activations that these kinds bring. What a matrix costs hangs on the others: a router that picks
another expert does so once, whichever matrices moved it.

What a kind makes of a matrix is computed once, and lies in a file without a name while this is
open, as do the logits of the model itself.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from headrace.config.settings import EngineConfig
from headrace.errors import CheckpointError
from headrace.eval.divergence import log_softmax, row_divergences
from headrace.eval.mixes.candidates import Group
from headrace.eval.windows import WindowRunner
from headrace.models import Model, load_model
from headrace.ops.interface import Ops
from headrace.weights.codecs import Codec
from headrace.weights.gguf.checkpoint import checkpoint_of_gguf
from headrace.weights.gguf.file import GGUFFile
from headrace.weights.quantize.importance import ImportanceFile
from headrace.weights.quantize.recode import recoded
from headrace.weights.tensors.source import source_of_tensor
from headrace.weights.tensors.tensor import Tensor

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
        model's logits, float32 for each of the scored positions and each token of the vocabulary,
        and for its matrices in the kinds that are measured; CheckpointError where there is none.
        """
        self._file, self._ops = file, ops
        self._windows = windows
        self._encoded = _EncodedMatrices(file, importance, folder, threads)
        model = load_model(checkpoint_of_gguf(file), ops)
        scored = [len(window) - 1 - len(window) // 2 for window in windows]
        self._starts = list(accumulate(scored, initial=0))
        self._stored = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        shape = self._starts[-1], model.vocab_size
        with _room_in(folder, "the model's logits"):
            # A page of a sparse file that the disk has no room for ends the process (SIGBUS).
            os.posix_fallocate(self._stored.fileno(), 0, 4 * math.prod(shape))
        self._logits: npt.NDArray[np.float32] = np.memmap(
            self._stored, np.float32, "r+", shape=shape
        )
        runner = self._runner(model)
        for index, window in enumerate(windows):
            at = self._starts[index]
            for piece in runner.run(index, window):
                logits = piece.values
                self._logits[at : at + len(logits)] = logits
                at += len(logits)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._encoded.close()
        self._stored.close()

    def divergences(
        self, groups: Sequence[Group], kinds: Sequence[Codec], windows: Sequence[int]
    ) -> Floats:
        """KL(model || variant) of every scored position of these windows, in nats, float64[n],
        where the groups are stored and computed in the kinds.
        """
        tensors = dict(self._file.tensors)
        for group, kind in zip(groups, kinds, strict=True):
            for name in group.tensors:
                tensors[name] = self._encoded.of(name, kind)
        file = replace(self._file, tensors=tensors)
        runner = self._runner(load_model(checkpoint_of_gguf(file), self._ops))
        found = []
        for index in windows:
            at = self._starts[index]
            for piece in runner.run(index, self._windows[index]):
                logits = piece.values
                base = log_softmax(self._logits[at : at + len(logits)])
                found.append(row_divergences(base, log_softmax(logits)))
                at += len(logits)
        return np.concatenate(found)

    def _runner(self, model: Model) -> WindowRunner:
        # Rounded keys and values would add their own noise to what a mix costs.
        context = len(self._windows[0])
        return WindowRunner(model, self._ops, context, cache=EngineConfig(kv_cache_dtype="f32"))


@contextmanager
def _room_in(folder: Path, what: str) -> Iterator[None]:
    """Errors of a disk that takes no more name the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO):
            raise
        raise CheckpointError(
            f"{folder}: {what} cannot be kept there while kinds are chosen: {error.strerror}; make "
            "room and run the same command again, which goes on with what was measured, or give a "
            "DST on another disk and the file of --measurements"
        ) from error


class _EncodedMatrices:
    """The matrices of a file in other kinds, each made when it is first asked for."""

    def __init__(
        self, file: GGUFFile, importance: ImportanceFile | None, folder: Path, threads: int
    ) -> None:
        self._file, self._importance, self._folder = file, importance, folder
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "variants")
        self._made: dict[tuple[str, str], Tensor] = {}

    def close(self) -> None:
        """End the threads; matrices that are held stay."""
        self._pool.shutdown()
        self._made.clear()

    def of(self, name: str, codec: Codec) -> Tensor:
        """This tensor in that kind, mapped."""
        found = self._made.get((name, codec.name))
        if found is None:
            found = self._made[name, codec.name] = self._encode(self._file.tensors[name], codec)
        return found

    def _encode(self, tensor: Tensor, codec: Codec) -> Tensor:
        columns = None
        if self._importance is not None and codec.takes_importance:
            sums = self._importance.sums.get(tensor.name)
            columns = None if sums is None else sums.importance()
        source = source_of_tensor(tensor, tensor.name, tensor.codec)
        shape = len(tensor.data), codec.row_bytes(tensor.shape[-1])
        with (
            _room_in(self._folder, f"{tensor.name!r} in {codec.name}"),
            tempfile.TemporaryFile(dir=self._folder) as file,
        ):
            for piece in recoded(source, codec, columns, self._pool, self._threads).pieces():
                file.write(piece.tobytes())
            file.flush()
            data = np.memmap(file, np.uint8, "r", shape=shape)
        return Tensor(tensor.name, tensor.shape, codec, data)
