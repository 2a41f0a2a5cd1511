"""From a folder of weights at 16 or 32 bits to one of a quantised layout.

The new folder is made beside its place and moved there when it is whole and opens: config.json is
the source's with what was added to it, so that nothing else of the model is stated in other words;
tokenizer and templates go along as they are.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, ConfigError
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import BF16, F16, F32
from headrace.weights.compress.formats import Format
from headrace.weights.compress.library import Job
from headrace.weights.files.json_file import read_json_object
from headrace.weights.open import open_checkpoint
from headrace.weights.storage.quantisation import KEY, stated_quantisation
from headrace.weights.tensors.tensor import Tensor

Run = Callable[[Job, Path], str]
"""Does a job with files of its own in a folder; the program's name and version."""

_PLAIN = (F32, F16, BF16)
_BESIDE = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja",
    "chat_template.json", "generation_config.json", "chat_templates",
    "additional_chat_templates",
)  # fmt: skip
"""Files of a folder that go along: what tokenizers, templates and sampling are read from."""

_KEPT = (
    "lm_head", "re:.*\\.(mlp|moe|block_sparse_moe)\\.gate(\\.wg)?$",
    "re:.*\\.router(\\.layer|\\.proj)?$", "re:.*shared_expert_gate$",
)  # fmt: skip
"""Modules that keep 16 bits: the output, and what decides which experts a token goes to."""


_IN_LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")
"""In names of tensors: "h" is GPT-2's and Falcon's."""


@dataclass(frozen=True)
class CompressOptions:
    """An order for a folder."""

    format: Format
    group_size: int | None = None
    """Values along a row that share a scale; None for the format's own."""
    windows: Sequence[Sequence[int]] = ()
    """Token ids that the model reads, where the format is made while it reads."""
    threads: int = 1


@dataclass(frozen=True)
class CompressResult:
    """The result of a run."""

    path: Path
    nbytes: int
    """Of the tensors."""
    source_nbytes: int
    num_values: int
    """Weights, as the source has them."""
    kinds: Mapping[str, int]
    """Tensors by the kind that they are held in."""
    program: str
    """Name and version of what found the numbers."""
    notes: tuple[str, ...]
    """What was lost without changing an answer; one sentence each."""

    @property
    def bits_per_weight(self) -> float:
        """Over all tensors, scales counted."""
        return 8 * self.nbytes / max(1, self.num_values)


def is_plain(checkpoint: Checkpoint) -> bool:
    """Whether it is a folder whose weights are numbers of 16 or 32 bits."""
    return checkpoint.format == "safetensors" and not stated_quantisation(checkpoint.config)


def quantised_tensor(checkpoint: Checkpoint) -> Tensor | None:
    """A tensor that is quantised already; None where there is none."""
    return next((t for t in checkpoint.tensors.values() if t.codec not in _PLAIN), None)


def check_group_size(checkpoint: Checkpoint, format: Format, group_size: int | None) -> None:
    """Raise ConfigError where rows are not whole groups, or a size was named for a format of one.

    What counts are matrices of layers.
    """
    if group_size is not None and not format.sizes:
        raise ConfigError(
            f"--group-size {group_size}: the groups of {format.scheme} are what they are; it "
            "belongs to formats of whole numbers in groups (w4a16, w8a16, w4a8, ...)"
        )
    size = group_size or format.group_size
    if not size:
        return
    for name, tensor in checkpoint.tensors.items():
        # Convolutions and stacks have more dimensions, norms and biases fewer.
        if _IN_LAYER.search(name) and len(tensor.shape) == 2 and tensor.shape[1] % size:
            fits = [n for n in (128, 64, 32) if tensor.shape[1] % n == 0 and n < size]
            remedy = f"give --group-size {fits[0]}" if fits and format.sizes else (
                "choose a format with a scale for each row (fp8, int8)"
            )  # fmt: skip
            raise ConfigError(
                f"rows of {name!r} have {tensor.shape[1]} values, not a multiple of the group's "
                f"{size}; {remedy}"
            )


def compress(
    source: Path,
    checkpoint: Checkpoint,
    out: Path,
    options: CompressOptions,
    run: Run,
) -> CompressResult:
    """Write the folder `out` from the folder `source`, which `checkpoint` was opened from.

    `out` is a folder that does not exist, within a folder that does: the caller moves it to its
    place. Raises what `run` raises, and CheckpointError where what it wrote does not open, lacks a
    tensor or has a matrix of a layer as it was.
    """
    work = out.with_name(f"{out.name}.work")
    work.mkdir()
    job = Job(
        source=str(source), out=str(out), scheme=options.format.scheme,
        method=options.format.method, group_size=options.group_size or 0, ignore=list(_KEPT),
        windows=[list(window) for window in options.windows], threads=options.threads,
    )  # fmt: skip
    program = run(job, work)
    made = read_json_object(out / "config.json").get(KEY)
    if not isinstance(made, dict):
        raise CheckpointError(f"{program} wrote a config.json without {KEY!r}; nothing was made")
    for name in _BESIDE:
        if (source / name).is_dir():
            shutil.copytree(source / name, out / name)
        elif (source / name).is_file():
            shutil.copyfile(source / name, out / name)
        else:
            (out / name).unlink(missing_ok=True)
    config = dict(read_json_object(source / "config.json")) | {KEY: made}
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (out / "config.json").write_text(text, encoding="utf-8")
    return _described(checkpoint, out, program)


def _described(checkpoint: Checkpoint, out: Path, program: str) -> CompressResult:
    opened = open_checkpoint(out)
    missing = sorted(checkpoint.tensors.keys() - opened.tensors.keys())
    layers = checkpoint.config.get("num_hidden_layers")
    further = [name for name in missing if _is_beyond(name, layers)]
    if lost := [name for name in missing if name not in further]:
        raise CheckpointError(
            f"{program} left out {len(lost)} tensors, {lost[0]!r} among them; it does not make "
            "folders of this model"
        )
    plain = [
        name
        for name, tensor in opened.tensors.items()
        if tensor.codec in _PLAIN and name in checkpoint.tensors and is_quantisable(name, tensor)
    ]
    if plain:
        raise CheckpointError(
            f"{program} left {len(plain)} matrices of layers as they were, {plain[0]!r} among "
            "them; it does not make folders of this model"
        )
    kinds = Counter(tensor.codec.name for tensor in opened.tensors.values())
    if not kinds.keys() - {codec.name for codec in _PLAIN}:
        raise CheckpointError(f"{program} quantised no matrix of this model")
    notes = [f"layers that predict further tokens were left out ({len(further)} tensors)"]
    return CompressResult(
        path=out,
        nbytes=sum(path.stat().st_size for path in out.glob("*.safetensors")),
        source_nbytes=checkpoint.nbytes,
        num_values=sum(tensor.num_values for tensor in checkpoint.tensors.values()),
        kinds=dict(kinds),
        program=program,
        notes=tuple(notes if further else ()),
    )


def is_quantisable(name: str, tensor: Tensor) -> bool:
    """Whether a tensor is a matrix of a layer, or a stack of experts', that a format is meant for.

    Stacks may be parameters without ".weight". Convolutions over single channels, (channels, 1,
    width), and biases of experts are none.
    """
    module = name.removesuffix(".weight")
    is_weight = module != name
    is_matrix = len(tensor.shape) == 2 and is_weight
    is_stack = len(tensor.shape) == 3 and (is_weight or ".experts." in name)
    if not _IN_LAYER.search(name) or not (is_matrix or (is_stack and tensor.shape[1] > 1)):
        return False
    return not any(
        re.match(kept.removeprefix("re:"), module) if kept.startswith("re:") else module == kept
        for kept in _KEPT
    )


def _is_beyond(name: str, layers: Any) -> bool:
    """Whether a tensor is of a layer behind the last that answers are computed with."""
    number = _IN_LAYER.search(name)
    return number is not None and isinstance(layers, int) and int(number[1]) >= layers
