"""Writing a checkpoint as one GGUF file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.architectures import UNKNOWN_PREFIX, Architecture, architecture_of_config
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import F16, F32, Codec, get_codec
from headrace.weights.conversion.both_ways import (
    ConversionResult,
    Reordering,
    count_codecs,
    is_redundant,
    unscaled,
)
from headrace.weights.gguf.metadata import metadata_of_config, sampling_metadata
from headrace.weights.gguf.tokenizer import TEMPLATE_KEY, TOKENIZER_PREFIX
from headrace.weights.gguf.values import FILE_TYPES, Metadata
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.expert_stacks import Stacks
from headrace.weights.tensors.latent_heads import with_split_heads
from headrace.weights.tensors.source import TensorSource, source_of_array
from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tokenizer.data import END_KEYS
from headrace.weights.tokenizer.hf_tokenizer import tokenizer_arrays
from headrace.weights.tokenizer.tokenizer_json import read_tokenizer_json

# A table of learned positions, which llama.cpp's converter and quantizer leave as it is: it is
# small, and each of its rows is added to the residual stream of every text.
_POSITIONS = "position_embd.weight"


def convert_to_gguf(
    hf_folder: Path | str,
    out_path: Path | str,
    codec: str = "Q8_0",
    metadata: Mapping[str, Any] | None = None,
    pre: str | None = None,
) -> ConversionResult:
    """Write the Hugging Face folder `hf_folder` as one complete GGUF file; see `write_gguf`."""
    return write_gguf(open_checkpoint(hf_folder), out_path, codec, metadata=metadata, pre=pre)


def write_gguf(
    checkpoint: Checkpoint,
    path: Path | str,
    codec: str | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    pre: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ConversionResult:
    """Write `checkpoint` as GGUF version 3.

    codec: kind of the matrices; None keeps each as it is, kinds without an encoder too. Vectors
    are always F32 (llama.cpp computes norms in nothing else). A matrix whose rows are not whole
    blocks becomes F16, which the notes say. metadata: further entries, such as "general.name"; they
    win over derived ones.
    pre: name of the pre-tokenizer where tokenizer.json has an unusual one. progress: called after
    every tensor with bytes done and in all.
    Raises UnsupportedModelError or CheckpointError naming what GGUF cannot hold.
    """
    path = Path(path)
    contents = gguf_contents(checkpoint, codec, metadata=metadata, pre=pre)
    nbytes = write_gguf_file(path, contents.entries, contents.sources, progress=progress)
    return ConversionResult(path, nbytes, count_codecs(contents.sources), contents.notes)


@dataclass(frozen=True)
class GGUFContents:
    """A GGUF file that is yet to be written."""

    entries: dict[str, Any]
    """Its metadata."""
    sources: list[TensorSource]
    """Its tensors, in order."""
    notes: tuple[str, ...]
    """As in `ConversionResult`."""


def gguf_contents(
    checkpoint: Checkpoint,
    codec: str | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    pre: str | None = None,
) -> GGUFContents:
    """What `write_gguf` writes, with no weight read so far; its arguments and errors."""
    checkpoint = unscaled(checkpoint)
    target = None if codec is None else get_codec(codec)
    if target is not None:
        target.check_can_encode()
    architecture = architecture_of_config(checkpoint.config.get("model_type"))
    notes: list[str] = []
    factors: Mapping[str, npt.NDArray[np.float32]] = {}
    if checkpoint.format == "gguf" and isinstance(checkpoint.metadata, Metadata):
        kept = checkpoint.metadata
        entries: dict[str, Any] = {
            key: kept.typed(key) for key in kept if key != "general.alignment"
        }
    else:
        entries, factors = _entries_of_folder(checkpoint, architecture, pre, notes)
    reordering = Reordering(checkpoint, architecture, architecture.gguf)
    sources = []
    stacks = Stacks.of_gguf(architecture)
    tensors = checkpoint.tensors.items()
    if architecture.latent:
        tensors = dict(with_split_heads(checkpoint.tensors, checkpoint.config)).items()
    for name, tensor in tensors:
        if is_redundant(checkpoint, name, notes):
            continue
        place = architecture.in_layer(name)
        if place is not None and place[1].rpartition(".")[0] in architecture.single_rows:
            tensor = replace(tensor, shape=tensor.shape[-1:])
        chosen = _gguf_codec(tensor, target, architecture, reordering, notes)
        if stacks.takes(name):
            stacks.add(reordering.source(tensor, name, chosen))
            continue
        gguf_name = _gguf_name(architecture, name)
        if gguf_name == _POSITIONS and target is not None:
            chosen = F32
        sources.append(reordering.source(tensor, gguf_name, chosen))
    sources += stacks.sources()
    sources += [source_of_array(values, name) for name, values in factors.items()]
    # A mixture keeps the name its maker gave it: Q4_K_S and Q4_K_M are Q4_K to most matrices.
    if target is not None or "general.file_type" not in entries:
        entries["general.file_type"] = _file_type(sources)
    entries["general.quantization_version"] = 2
    entries |= dict(metadata or {})
    return GGUFContents(entries, sources, tuple(notes))


def _gguf_name(architecture: Architecture, name: str) -> str:
    if name.startswith(UNKNOWN_PREFIX):
        return name.removeprefix(UNKNOWN_PREFIX)
    return architecture.gguf_name(name)


def _gguf_codec(
    tensor: Tensor,
    target: Codec | None,
    architecture: Architecture,
    reordering: Reordering,
    notes: list[str],
) -> Codec:
    # Norms with a row of weights for each head are no matrices.
    if len(tensor.shape) < 2 or tensor.name.endswith("norm.weight"):
        return F32
    # What picks the experts is small, and a rounded score picks others.
    place = architecture.in_layer(tensor.name)
    if place is not None and place[1].rpartition(".")[0] in architecture.routers:
        return F32
    if target is None:
        return reordering.codec(tensor)
    width = reordering.width(tensor)
    if width % target.block_elements:
        notes.append(
            f"{tensor.name} is F16: its rows of {width} are not whole blocks of "
            f"{target.block_elements} for {target.name}"
        )
        return F16
    return target


def _file_type(sources: list[TensorSource]) -> int:
    matrices = Counter(source.codec.name for source in sources if len(source.shape) > 1)
    return FILE_TYPES[matrices.most_common(1)[0][0]] if matrices else FILE_TYPES["F32"]


def _check_biases(checkpoint: Checkpoint, architecture: Architecture) -> None:
    """In GGUF a bias that is there is used, whatever the folder's config said."""
    for key, projections in architecture.bias_keys.items():
        endings = tuple(f"{projection}.bias" for projection in projections)
        denied = [name for name in checkpoint.tensors if name.endswith(endings)]
        if checkpoint.config.get(key) is False and denied:
            raise CheckpointError(
                f"{checkpoint.path}: config key {key} is false but there is a tensor "
                f"{denied[0]!r}; remove one of them"
            )


def _entries_of_folder(
    checkpoint: Checkpoint, architecture: Architecture, pre: str | None, notes: list[str]
) -> tuple[dict[str, Any], Mapping[str, npt.NDArray[np.float32]]]:
    _check_biases(checkpoint, architecture)
    model = metadata_of_config(checkpoint.config, architecture)
    vocab_size = checkpoint.config["vocab_size"]
    embedding = checkpoint.tensors.get(architecture.embedding)
    if embedding is None or embedding.shape[0] != vocab_size:
        rows = 0 if embedding is None else embedding.shape[0]
        raise CheckpointError(
            f"{checkpoint.path}: vocab_size is {vocab_size} but {architecture.embedding} has "
            f"{rows} rows"
        )
    entries = {
        **model.entries,
        "general.type": "model",
        "general.name": checkpoint.path.resolve().name,
        **sampling_metadata(checkpoint.generation_config),
    }
    if checkpoint.tokenizer.json_path is not None:
        arrays = tokenizer_arrays(
            read_tokenizer_json(checkpoint.tokenizer.json_path).content,
            checkpoint.tokenizer.config,
            vocab_size,
            checkpoint.eos_token_ids,
            pre,
        )
        entries |= {TOKENIZER_PREFIX + key: value for key, value in arrays.entries.items()}
        notes.extend(arrays.notes)
    else:
        entries[f"{TOKENIZER_PREFIX}model"] = "none"
        ends = zip(END_KEYS, checkpoint.eos_token_ids, strict=False)
        entries |= {TOKENIZER_PREFIX + key: token for key, token in ends}
        notes.append("the folder has no tokenizer.json, so the file has no tokens")
    # tokenizer_config.json wins; a folder without it names the first token in config.json only.
    first = checkpoint.config.get("bos_token_id")
    if isinstance(first, int) and 0 <= first < vocab_size:
        entries.setdefault(f"{TOKENIZER_PREFIX}bos_token_id", first)
    named = []
    for name, template in checkpoint.chat_templates.items():
        if name == "default":
            entries[TEMPLATE_KEY] = template
        else:
            entries[f"{TEMPLATE_KEY}.{name}"] = template
            named.append(name)
    if named:
        entries["tokenizer.chat_templates"] = named
    return entries, model.tensors
