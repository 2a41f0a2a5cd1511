"""Experts of a layer: one tensor for all of them, or one for each.

The canonical names are those of single experts. A stack of shape [experts, rows, columns] lies
expert after expert, so each is a view of its part and blocks of no codec are touched. GGUF files
hold a stack of each module; folders hold single experts, or stacks in which the rows of several
modules (gate, then up) stand one after another for each expert; those of some families are turned
(`turned_stacks`). Which tensors these are an architecture declares (`experts`, `folder_experts`);
a family with experts needs nothing here.

Source: llama.cpp conversion of "*_exps" tensors, ggml_mul_mat_id (order of dimensions);
transformers conversion_mapping.py and modeling_granitemoe.py (stacks in folders).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.architectures import Architecture, GGUFKeys
from headrace.weights.codecs import BYTES
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tensors.turned_stacks import (
    BLOCKS,
    SCALES,
    mxfp4_parts,
    turned_parts,
    turned_stack,
)

MAX_EXPERTS = 4096
"""Experts of a layer; published models have up to 512. It bounds what a hostile file or config
costs: each becomes an object."""


def unstacked(stored: Tensor, architecture: Architecture, keys: GGUFKeys) -> Iterator[Tensor]:
    """A tensor of a GGUF file by canonical name; where it holds all experts, one for each.

    Raises CheckpointError for a stack of another form than [experts, rows, columns], or [experts,
    rows] of biases, or of another number of experts than the file states.
    """
    names = architecture.expert_names(stored.name)
    if not names:
        name = architecture.canonical_name(stored.name)
        place = architecture.in_layer(name)
        row = place is not None and place[1].rpartition(".")[0] in architecture.single_rows
        shape = (1, *stored.shape) if row and len(stored.shape) == 1 else stored.shape
        yield _part(stored, name, shape, stored.data)
        return
    stated = keys.size("expert_count")
    count = stored.shape[0]
    vector = names[0].endswith(".bias")
    dimensions = 2 if vector else 3
    fits = len(stored.shape) == dimensions and not stored.shape[1] % len(names)
    if not fits or count > MAX_EXPERTS or stated not in (None, count):
        raise CheckpointError(
            f"{keys.path}: tensor {stored.name!r} has shape {list(stored.shape)}; "
            f"[experts, rows{'' if vector else ', columns'}] are required, with "
            f"'{keys.prefix}expert_count' ({stated}) experts, {MAX_EXPERTS} at most"
        )
    yield from _parts(stored, names)


def unstacked_folder(
    folder: Path, tensors: Mapping[str, Tensor], architecture: Architecture
) -> dict[str, Tensor]:
    """Tensors of a folder by canonical name; those that hold all experts of a layer as one each.

    Raises CheckpointError for a stack of another form than [experts, rows of all parts, columns],
    and for an expert that is there twice.
    """
    single: dict[str, Tensor] = {}
    for tensor in tensors.values():
        for part in _folder_parts(folder, tensor, architecture, tensors):
            if part.name in single:
                raise CheckpointError(
                    f"{folder}: tensor {part.name!r} is there twice, once in a stack of all "
                    "experts; remove one of them"
                )
            single[part.name] = part
    return single


def _folder_parts(
    folder: Path, stored: Tensor, architecture: Architecture, tensors: Mapping[str, Tensor]
) -> Iterator[Tensor]:
    names = architecture.folder_parts(stored.name)
    if architecture.turned_stacks == "in_turn":
        yield from _parts_in_turn(folder, stored, architecture, tensors)
        return
    if names is None:
        yield stored
        return
    if architecture.turned_stacks:
        yield from turned_parts(stored, names, MAX_EXPERTS, folder, in_turn=False)
        return
    if len(stored.shape) != 3 or stored.shape[0] > MAX_EXPERTS or stored.shape[1] % len(names):
        raise CheckpointError(
            f"{folder}: tensor {stored.name!r} has shape {list(stored.shape)}; [experts, rows, "
            f"columns] are required, with {MAX_EXPERTS} experts at most and the rows of "
            f"{len(names)} matrices for each"
        )
    yield from _parts(stored, names)


def _parts_in_turn(
    folder: Path, stored: Tensor, architecture: Architecture, tensors: Mapping[str, Tensor]
) -> Iterator[Tensor]:
    name, _, ending = stored.name.rpartition("_")
    packed = architecture.folder_parts(name) if f"_{ending}" in (BLOCKS, SCALES) else None
    if packed is None and stored.codec is BYTES:
        raise CheckpointError(
            f"{folder}: tensor {stored.name!r} is {stored.codec.name}; bytes are weights of "
            f"experts alone here, whose names end in {BLOCKS} and {SCALES}"
        )
    if packed is None:
        names = architecture.folder_parts(stored.name)
        if names is None:
            yield stored
        else:
            yield from turned_parts(stored, names, MAX_EXPERTS, folder, in_turn=True)
    elif f"_{ending}" == BLOCKS:
        scales = tensors.get(name + SCALES)
        yield from mxfp4_parts(stored, scales, packed, MAX_EXPERTS, folder)
    elif name + BLOCKS not in tensors:
        raise CheckpointError(
            f"{folder}: tensor {stored.name!r} is there without {name + BLOCKS!r}; the folder is "
            "incomplete, fetch it again"
        )


def _parts(stored: Tensor, names: Sequence[str]) -> Iterator[Tensor]:
    """Matrices or vectors of a stack: for each expert those of `names`, as many rows each."""
    count = stored.shape[0] * len(names)
    shape = (stored.shape[1] // len(names), *stored.shape[2:])
    # Vectors lie in one row each.
    rows = len(stored.data) // max(1, count)
    for index in range(count):
        number, part = divmod(index, len(names))
        if isinstance(stored, ScaledTensor):
            yield stored.part(names[part].format(number), (rows, stored.shape[-1]), index * rows)
            continue
        data = stored.data[index * rows : (index + 1) * rows]
        yield _part(stored, names[part].format(number), shape, data)


def _part(stored: Tensor, name: str, shape: tuple[int, ...], data: npt.NDArray[np.uint8]) -> Tensor:
    return Tensor(name, shape, stored.codec, data, stored.row_order)


Place = Callable[[str], tuple[str, int] | None]
"""(name of a stack, place in it) of one expert's tensor by canonical name; None for any other."""


class Stacks:
    """A collector of single experts on their way into a file that has them as stacks."""

    def __init__(
        self, place: Place, container: str, parts: Callable[[str], int], *, turned: str = ""
    ) -> None:
        """parts: matrices of one expert in the stack of a name. container: for messages.

        turned: as in Architecture.
        """
        self._place = place
        self._container = container
        self._parts = parts
        self._turned = turned
        self._stacks: dict[str, dict[int, TensorSource]] = {}

    @classmethod
    def of_gguf(cls, architecture: Architecture) -> Stacks:
        """For a GGUF file: a stack of each module."""
        return cls(architecture.expert_place, "GGUF", lambda name: 1)

    @classmethod
    def of_folder(cls, architecture: Architecture) -> Stacks:
        """For a folder: the stacks of families whose folders have no single experts."""
        return cls(
            architecture.folder_place,
            "the folder",
            lambda name: len(architecture.folder_parts(name) or ("",)),
            turned=architecture.turned_stacks,
        )

    def takes(self, canonical_name: str) -> bool:
        """Whether a tensor of this name is one expert's."""
        return self._place(canonical_name) is not None

    def add(self, source: TensorSource) -> None:
        """One expert's tensor, under its canonical name; raises KeyError for another."""
        place = self._place(source.name)
        if place is None:
            raise KeyError(source.name)
        stack, index = place
        members = self._stacks.setdefault(stack, {})
        if index in members:
            raise CheckpointError(
                f"tensors {members[index].name!r} and {source.name!r} are the same expert's; "
                "remove one of them"
            )
        members[index] = source

    def sources(self) -> list[TensorSource]:
        """The stacks, by the names they have in the file.

        Raises CheckpointError where one of the experts is missing or unlike the others.
        """
        return [self._stack(name, members) for name, members in self._stacks.items()]

    def _stack(self, name: str, members: dict[int, TensorSource]) -> TensorSource:
        sources: Sequence[TensorSource] = [members[index] for index in sorted(members)]
        first, parts = sources[0], self._parts(name)
        if max(members) >= len(sources) or len(sources) % parts:
            missing = min(set(range(len(sources) + 1)) - set(members)) // parts
            raise CheckpointError(
                f"expert {missing} of {self._container}'s tensor {name!r} is missing, while "
                f"{sources[-1].name!r} is there; fetch the checkpoint again"
            )
        for source in sources:
            if source.shape != first.shape or source.codec is not first.codec:
                raise CheckpointError(
                    f"tensor {source.name!r} is {source.codec.name} {list(source.shape)} and "
                    f"{first.name!r} {first.codec.name} {list(first.shape)}; {self._container}'s "
                    f"{name!r} holds both and needs them alike: name a codec to write them in"
                )

        if self._turned:
            return turned_stack(name, sources, parts, in_turn=self._turned == "in_turn")

        def pieces() -> Iterator[npt.NDArray[np.uint8]]:
            for source in sources:
                yield from source.pieces()

        shape = (len(sources) // parts, parts * first.shape[0], *first.shape[1:])
        return TensorSource(name, shape, first.codec, pieces)
