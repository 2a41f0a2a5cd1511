"""The kinds that each matrix of a model may get."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import ConfigError
from headrace.weights.codecs import Codec, get_codec
from headrace.weights.gguf.writer import padded
from headrace.weights.quantize.plan import Override, fitting_codec
from headrace.weights.quantize.roles import may_be_quantised
from headrace.weights.tensors.source import TensorSource

# By the bits of a weight. What is not here (Q4_0, Q5_0, ...) has as many bits as one that is here,
# and larger errors.
_WIDE = ("Q2_K", "Q3_K", "IQ4_XS", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "BF16")
_NARROW = ("IQ4_NL", "Q5_1", "Q8_0", "BF16")
"""Where rows are not whole blocks of 256."""

# Gate and up of experts are one matrix to the engine, and so have to be of one kind.
_PAIR = re.compile(r"(blk\.\d+\.ffn_)(?:gate|up)(_[a-z]*exps?\.weight)")


@dataclass(frozen=True)
class Group:
    """Matrices that get the same kind: nearly always one."""

    name: str
    tensors: tuple[str, ...]
    kinds: tuple[Codec, ...]
    """By rising size."""
    sizes: tuple[int, ...]
    """Bytes in the file in each of these kinds."""
    stored: Codec
    """The kind they have, which costs nothing."""


def groups_of(tensors: Sequence[TensorSource], overrides: Sequence[Override] = ()) -> list[Group]:
    """The groups of the tensors of a file, in its order.

    overrides: the first whose pattern is found in a name leaves that kind alone. Raises ConfigError
    where matrices that have to be of one kind have different ones.
    """
    members: dict[str, list[TensorSource]] = {}
    for tensor in tensors:
        if may_be_quantised(tensor.name, tensor.shape):
            name = _PAIR.sub(r"\1gate+up\2", tensor.name)
            members.setdefault(name, []).append(tensor)
    return [_group(name, group, overrides) for name, group in members.items()]


def _group(name: str, tensors: Sequence[TensorSource], overrides: Sequence[Override]) -> Group:
    stored = tensors[0].codec
    forced = [
        next(
            (
                fitting_codec(each.codec, tensor.shape[-1])
                for each in overrides
                if each.pattern.search(tensor.name)
            ),
            None,
        )
        for tensor in tensors
    ]
    if any(tensor.codec is not stored for tensor in tensors) or len(set(forced)) > 1:
        names = ", ".join(tensor.name for tensor in tensors)
        raise ConfigError(f"{names} are computed as one matrix, and have to be of one kind")
    kinds = [forced[0]] if forced[0] is not None else _kinds(tensors)
    sizes = [sum(_nbytes(tensor, codec) for tensor in tensors) for codec in kinds]
    order = sorted(range(len(kinds)), key=lambda at: sizes[at])
    return Group(
        name,
        tuple(tensor.name for tensor in tensors),
        tuple(kinds[at] for at in order),
        tuple(sizes[at] for at in order),
        stored,
    )


def _kinds(tensors: Sequence[TensorSource]) -> list[Codec]:
    stored = tensors[0].codec
    widths = {tensor.shape[-1] for tensor in tensors}
    for ladder in (_WIDE, _NARROW):
        codecs = [get_codec(name) for name in ladder]
        if all(width % codec.block_elements == 0 for width in widths for codec in codecs):
            smaller = [each for each in codecs if each.bits_per_weight < stored.bits_per_weight]
            return [*smaller, stored]
    return [stored]


def _nbytes(tensor: TensorSource, codec: Codec) -> int:
    return padded(math.prod(tensor.shape[:-1]) * codec.row_bytes(tensor.shape[-1]))
