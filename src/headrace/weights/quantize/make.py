"""A model's file of a smaller kind, from a GGUF file or a Hugging Face folder."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, ConfigError, UnsupportedModelError, shown
from headrace.weights.codecs import Codec
from headrace.weights.conversion.to_gguf import GGUFContents, gguf_contents
from headrace.weights.gguf.file import MAGIC
from headrace.weights.gguf.split import read_gguf_model
from headrace.weights.gguf.writer import gguf_header, padded
from headrace.weights.open import open_checkpoint
from headrace.weights.quantize.importance import ImportanceFile, read_importance
from headrace.weights.quantize.mixes import UNSAFE_WITHOUT_IMPORTANCE, Mix
from headrace.weights.quantize.partial_file import write_resumable
from headrace.weights.quantize.plan import Override, kinds_of, shape_of
from headrace.weights.quantize.recode import recoded
from headrace.weights.quantize.roles import Role, role_of
from headrace.weights.store.gguf_group import gguf_groups
from headrace.weights.tensors.source import TensorSource, source_of_tensor

ENCODERS = 2
"""Part of what half-written files and measured divergences are recognised by: changes when encoders
give other bytes."""
_FILE_TYPE, _VERSION = "general.file_type", "general.quantization_version"
_UNQUANTISED = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class QuantizeOptions:
    """Choices about the file that is to be made."""

    mix: Mix
    overrides: Sequence[Override] = ()
    """The first whose pattern is found in a tensor's name decides over the mix."""
    pure: bool = False
    """Whether all matrices get the mix's own kind."""
    kinds: Mapping[str, Codec] | None = None
    """The kind of each tensor by name, in place of the mix's; those not named stay as they are. The
    file then names no mix (general.file_type), as it is of none: readers go by its tensors."""
    importance: Path | None = None
    """An imatrix file."""
    allow_requantize: bool = False
    """Whether tensors that are quantised already may become another kind."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """A tensor that is done."""

    name: str
    source: Codec
    codec: Codec
    num_values: int
    number: int
    """From 1."""
    count: int
    """Of tensors in all."""
    done_values: int
    total_values: int


@dataclass(frozen=True)
class QuantizeResult:
    """A file that was made."""

    path: Path
    nbytes: int
    source_nbytes: int
    """Of the tensors as they were."""
    num_values: int
    kinds: Mapping[str, int]
    """Tensors of each kind."""
    resumed: int
    """Tensors that were there from an earlier run."""
    notes: tuple[str, ...]

    @property
    def bits_per_weight(self) -> float:
        """Of the whole file."""
        return 8 * self.nbytes / max(1, self.num_values)


def make(
    source: Path,
    path: Path,
    order: QuantizeOptions,
    *,
    threads: int,
    progress: Callable[[Step], None] = lambda step: None,
    force: bool = False,
) -> QuantizeResult:
    """Write the model at `source` to `path` as `order` says.

    progress: called after every tensor that is written now. An interrupted run is taken up by the
    next with the same arguments, where nothing of the source changed meanwhile.
    Raises CheckpointError, ConfigError or UnsupportedModelError; nothing that looks like a model is
    left behind.
    """
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already; --force replaces it")
    if path.exists() and source.exists() and path.samefile(source):
        raise ConfigError(f"{path} is the source itself; name another file")
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"{path}: a file in a folder that exists is required")
    contents = contents_of(source)
    importance = None if order.importance is None else read_importance(order.importance)
    kinds = _kinds(contents, order)
    _check_importance(importance, contents.sources, kinds)
    notes = [*contents.notes, *_unused(importance, contents.sources)]
    entries = _entries(contents, order, importance)
    with ThreadPoolExecutor(threads, "quantize") as pool:
        tensors = [
            recoded(each, kinds[each.name], _columns(importance, each, kinds), pool, threads)
            for each in contents.sources
        ]
        header = gguf_header(path, entries, tensors)
        steps = _Steps(contents.sources, kinds, progress)
        nbytes = write_resumable(
            path, header, tensors, _key(source, header, order), steps.done, force=force
        )
    return QuantizeResult(
        path=path,
        nbytes=nbytes,
        source_nbytes=sum(each.nbytes for each in contents.sources),
        num_values=steps.total,
        kinds=dict(Counter(codec.name for codec in kinds.values())),
        resumed=steps.found,
        notes=tuple(notes),
    )


def plan(source: Path, order: QuantizeOptions) -> list[Step]:
    """The steps of `make`, with no weight read and nothing written; its errors."""
    contents = contents_of(source)
    steps: list[Step] = []
    counter = _Steps(contents.sources, _kinds(contents, order), steps.append)
    for number in range(len(contents.sources) + 1):
        counter.done(number)
    return steps


def made_bytes(source: Path, path: Path, order: QuantizeOptions) -> int:
    """The size of the file that `make` would write; its errors."""
    contents = contents_of(source)
    kinds = _kinds(contents, order)
    importance = None if order.importance is None else read_importance(order.importance)
    entries = _entries(contents, order, importance)
    tensors = [replace(each, codec=kinds[each.name]) for each in contents.sources]
    header = gguf_header(path, entries, tensors)
    return len(header) + sum(padded(tensor.nbytes) for tensor in tensors)


def _kinds(contents: GGUFContents, order: QuantizeOptions) -> dict[str, Codec]:
    if order.kinds is not None:
        kinds = {each.name: order.kinds.get(each.name, each.codec) for each in contents.sources}
    else:
        shape = shape_of(contents.entries, contents.sources, order.importance is not None)
        kinds = kinds_of(contents.sources, order.mix, shape, order.overrides, pure=order.pure)
    _check_requantize(contents.sources, kinds, order)
    return kinds


def contents_of(source: Path) -> GGUFContents:
    """The tensors and metadata of a GGUF file as they are, or those that a folder becomes."""
    if source.is_dir() and not (source / "config.json").exists():
        groups = gguf_groups(file.name for file in sorted(source.glob("*.gguf")))
        if len(groups) == 1:
            source = source / groups[0].files[0]
    if not source.is_file():
        return gguf_contents(open_checkpoint(source))
    with source.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return gguf_contents(open_checkpoint(source))
    stored = read_gguf_model(source)
    kind = stored.metadata.scalar("general.type", "model")
    if kind != "model":
        raise UnsupportedModelError(
            f"{source}: general.type is {shown(kind)}; only a 'model' can be quantised"
        )
    if not stored.tensors:
        raise CheckpointError(f"{source}: holds no tensors, only metadata (a vocabulary file?)")
    entries: dict[str, Any] = {
        key: stored.metadata.typed(key) for key in stored.metadata if key != "general.alignment"
    }
    sources = [source_of_tensor(each, name, each.codec) for name, each in stored.tensors.items()]
    return GGUFContents(entries, sources, ())


class _Steps:
    """Counts tensors that are done, and reports each."""

    def __init__(
        self,
        sources: Sequence[TensorSource],
        kinds: Mapping[str, Codec],
        progress: Callable[[Step], None],
    ) -> None:
        self._sources, self._kinds, self._progress = sources, kinds, progress
        self._values = [_num_values(source) for source in sources]
        self._up_to = [0, *accumulate(self._values)]
        self.total = self._up_to[-1]
        self.found: int = -1

    def done(self, number: int) -> None:
        if self.found < 0:
            self.found = number
            return
        source = self._sources[number - 1]
        step = Step(
            source.name, source.codec, self._kinds[source.name], self._values[number - 1],
            number, len(self._sources), self._up_to[number], self.total,
        )  # fmt: skip
        self._progress(step)


def _num_values(source: TensorSource) -> int:
    count = 1
    for size in source.shape:
        count *= size
    return count


def _check_requantize(
    sources: Sequence[TensorSource], kinds: Mapping[str, Codec], order: QuantizeOptions
) -> None:
    if order.allow_requantize:
        return
    for source in sources:
        codec = kinds[source.name]
        if source.codec.name not in _UNQUANTISED and codec is not source.codec:
            raise ConfigError(
                f"tensor {source.name!r} is {source.codec.name} already, and its errors would stay "
                f"in {codec.name}: start from F32, F16 or BF16, or accept that with "
                "--allow-requantize"
            )


def _check_importance(
    importance: ImportanceFile | None,
    sources: Sequence[TensorSource],
    kinds: Mapping[str, Codec],
) -> None:
    known = importance.sums if importance is not None else {}
    for source in sources:
        kind = kinds[source.name]
        if kind.name not in UNSAFE_WITHOUT_IMPORTANCE or kind is source.codec:
            continue
        final = role_of(source.name) in (Role.OUTPUT, Role.EMBEDDING)
        if source.name not in known and not final:
            missing = ", which the file of --imatrix does not have" if known else ""
            raise ConfigError(
                f"tensor {source.name!r} would be {kind.name}, of no use without importance"
                f"{missing}: measure it with headrace imatrix and name the file with --imatrix, or "
                "choose a wider kind"
            )


def _unused(importance: ImportanceFile | None, sources: Sequence[TensorSource]) -> list[str]:
    if importance is None:
        return []
    unknown = sorted(importance.sums.keys() - {source.name for source in sources})
    if len(unknown) == len(importance.sums):
        raise CheckpointError(
            "the importance file names no tensor of this model (the first of its names: "
            f"{shown(unknown[0]) if unknown else 'none'}); it was made for another"
        )
    if not unknown:
        return []
    return [f"importance of {len(unknown)} tensors that the model does not have was left out"]


def _columns(
    importance: ImportanceFile | None, source: TensorSource, kinds: Mapping[str, Codec]
) -> Any:
    if importance is None or not kinds[source.name].takes_importance:
        return None
    sums = importance.sums.get(source.name)
    return None if sums is None else sums.importance()


def _entries(
    contents: GGUFContents, order: QuantizeOptions, importance: ImportanceFile | None
) -> dict[str, Any]:
    entries: dict[str, Any] = {**contents.entries, _FILE_TYPE: order.mix.file_type, _VERSION: 2}
    if order.kinds is not None:
        del entries[_FILE_TYPE]
    if order.importance is not None and importance is not None:
        # The keys of llama-quantize (tools/quantize/quantize.cpp).
        entries |= {
            "quantize.imatrix.file": order.importance.name,
            "quantize.imatrix.entries_count": len(importance.sums),
            "quantize.imatrix.chunks_count": importance.chunks,
        }
        if importance.datasets:
            entries["quantize.imatrix.dataset"] = importance.datasets[0]
    return entries | dict(order.metadata)


def _key(source: Path, header: bytes, order: QuantizeOptions) -> str:
    """What the work is: its result, and the files it is made of as they are now."""
    digest = hashlib.sha256(header)
    files = [path for path in source.rglob("*") if path.is_file()] if source.is_dir() else [source]
    if source.is_file():
        files += source.parent.glob(f"{source.stem.split('-0')[0]}-*-of-*.gguf")
    if order.importance is not None:
        files.append(order.importance)
    for path in sorted(set(files)):
        facts = path.stat()
        digest.update(f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    digest.update(f"encoders {ENCODERS}".encode())
    return digest.hexdigest()
