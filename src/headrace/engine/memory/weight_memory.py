"""Whether weights fit in memory, asked before they are loaded.

The CPU kernels hold every matrix in a layout of their own, and torch holds it on its device: a
copy, which unlike a mapped file the kernel cannot drop. Weights larger than what is available would
therefore end the process in the middle of loading (or, with swap, be read back from it in every
step). So this is an error, not a warning, and it says what would fit. The reference backend
computes from the mapped file and is not held to it.
"""

from __future__ import annotations

import re

from headrace.engine.memory.available import available_memory_bytes
from headrace.engine.memory.kv_memory import MIB, REST_BYTES
from headrace.errors import ConfigError
from headrace.models import FAMILIES
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import CODECS
from headrace.weights.tensors.tensor import Tensor

HEAD = "lm_head.weight"

KINDS = ("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K")
"""What is suggested, the finest first."""

MIX_MARGIN = 1.1
"""Files named after a kind (Q4_K_M) hold some tensors in finer kinds: up to a tenth more bytes."""

_INDEXER = re.compile(r"\.self_attn\.index(er\.|_)")
_DRAFTS = re.compile(r"model\.mtp[._]")
"""Layers that predict further tokens where they have names of their own (MiMo, ERNIE 4.5)."""
_LAYER = re.compile(r"model\.layers\.(\d{1,5})\.", re.ASCII)


def check_weights_fit(
    checkpoint: Checkpoint, backend: str, available_bytes: int | None = None
) -> None:
    """Raises ConfigError where the copies of the weights are larger than what is available.

    available_bytes: of memory; looked up when None, and where that cannot be told nothing is said.
    """
    if backend == "reference":
        return
    available_bytes = known_available(available_bytes)
    if available_bytes is None:
        return
    needed = copied_bytes(checkpoint)
    if backend == "torch":  # tables too, of which one that is the head is there once
        needed = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
    room = available_bytes - REST_BYTES
    if needed <= room:
        return
    values = sum(tensor.num_values for tensor in checkpoint.tensors.values())
    raise ConfigError(
        f"{checkpoint.path}: the weights take {needed} bytes ({needed // MIB} MiB, "
        f"{needed * 8 / values:.1f} bits per weight) and {max(0, room)} bytes "
        f"({max(0, room) // MIB} MiB) of memory are available for them. {_remedy(values, room)}"
    )


def known_available(available_bytes: int | None) -> int | None:
    """The memory that is available: what was given, else looked up; None where it is unreadable."""
    if available_bytes is not None:
        return available_bytes
    try:
        return available_memory_bytes()
    except ConfigError:
        return None


def copied_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of weights that the kernels copy, at least."""
    return sum(tensor.nbytes for tensor in copied_tensors(checkpoint).values())


def copied_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights that the kernels copy: all but tables that are only looked up, indexers, which
    are not run, and layers that predict further tokens, which are counted apart where they are.
    """
    layers = checkpoint.config.get("num_hidden_layers")
    family = FAMILIES.get(str(checkpoint.config.get("model_type")))
    looked_up = () if family is None else family.looked_up_tables()
    tensors = {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if (not isinstance(layers, int) or _layer_of(name) < layers)
        and not _INDEXER.search(name)
        and not _DRAFTS.match(name)
        and name not in looked_up
    }
    head = tensors.get(HEAD)
    if head is not None:
        tables = [name for name, item in tensors.items() if item.shape == head.shape]
        tables.remove(HEAD)
        if tables:
            del tensors[max(tables, key=lambda name: tensors[name].nbytes)]
    return tensors


def _layer_of(name: str) -> int:
    """The layer of a tensor of "model.layers.N.", -1 where it is of none."""
    match = _LAYER.match(name)
    return int(match[1]) if match else -1


def _remedy(values: int, room: int) -> str:
    for kind in KINDS:
        num_bytes = int(values * CODECS[kind].bits_per_weight / 8 * MIX_MARGIN)
        if num_bytes <= room:
            return (
                f"Free memory, or use the same model as a GGUF file in {kind} or smaller: "
                f"about {num_bytes // MIB} MiB."
            )
    return "No quantization of this model fits: free memory, or use a smaller model."
