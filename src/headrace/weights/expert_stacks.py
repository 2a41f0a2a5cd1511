"""Experts of a layer: one tensor for all of them in GGUF, one for each in Hugging Face's folders.

The canonical names are those of single experts. A stack of shape [experts, rows, columns] lies
expert after expert, so each is a view of its part and blocks of no codec are touched. Which tensors
these are an architecture declares (`experts`); a family with experts needs nothing here.

Source: llama.cpp conversion of "*_exps" tensors, ggml_mul_mat_id (order of dimensions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.architectures import Architecture, GGUFKeys
from headrace.weights.source import TensorSource
from headrace.weights.tensor import Tensor

# Published models have up to 512. It bounds what a hostile file costs: each becomes an object.
MAX_EXPERTS = 4096


def unstacked(stored: Tensor, architecture: Architecture, keys: GGUFKeys) -> Iterator[Tensor]:
    """A tensor of a GGUF file by canonical name; where it holds all experts, one for each.

    Raises CheckpointError for a stack of another form than [experts, rows, columns], or of
    another number of experts than the file states.
    """
    names = architecture.expert_names(stored.name)
    if names is None:
        yield _part(stored, architecture.canonical_name(stored.name), stored.shape, stored.data)
        return
    stated = keys.size("expert_count")
    count = stored.shape[0]
    if len(stored.shape) != 3 or count > MAX_EXPERTS or stated not in (None, count):
        raise CheckpointError(
            f"{keys.path}: tensor {stored.name!r} has shape {list(stored.shape)}; "
            f"[experts, rows, columns] are required, with '{keys.prefix}expert_count' "
            f"({stated}) experts, {MAX_EXPERTS} at most"
        )
    rows = stored.shape[1]
    for index in range(count):
        data = stored.data[index * rows : (index + 1) * rows]
        yield _part(stored, names.format(index), stored.shape[1:], data)


def _part(stored: Tensor, name: str, shape: tuple[int, ...], data: npt.NDArray[np.uint8]) -> Tensor:
    return Tensor(name, shape, stored.codec, data, stored.row_order)


class Stacks:
    """A collector of single experts on their way into a GGUF file, which it stacks."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self._stacks: dict[str, dict[int, TensorSource]] = {}

    def takes(self, canonical_name: str) -> bool:
        """Whether a tensor of this name is one expert's."""
        return self._architecture.expert_place(canonical_name) is not None

    def add(self, source: TensorSource) -> None:
        """One expert's tensor, under its canonical name; raises KeyError for another."""
        place = self._architecture.expert_place(source.name)
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
        """The stacks, by the names of GGUF.

        Raises CheckpointError where one of the experts is missing or unlike the others.
        """
        return [_stack(name, members) for name, members in self._stacks.items()]


def _stack(name: str, members: dict[int, TensorSource]) -> TensorSource:
    parts: Sequence[TensorSource] = [members[index] for index in sorted(members)]
    first = parts[0]
    if max(members) >= len(parts):
        missing = min(set(range(len(parts))) - set(members))
        raise CheckpointError(
            f"expert {missing} of GGUF's tensor {name!r} is missing, while {parts[-1].name!r} is "
            "there; fetch the checkpoint again"
        )
    for part in parts:
        if part.shape != first.shape or part.codec is not first.codec:
            raise CheckpointError(
                f"tensor {part.name!r} is {part.codec.name} {list(part.shape)} and {first.name!r} "
                f"{first.codec.name} {list(first.shape)}; GGUF's {name!r} holds both and needs "
                "them alike: name a codec to write them in"
            )

    def pieces() -> Iterator[npt.NDArray[np.uint8]]:
        for part in parts:
            yield from part.pieces()

    return TensorSource(name, (len(parts), *first.shape), first.codec, pieces)
