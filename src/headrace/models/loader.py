"""From a checkpoint's tensors to a backend's weights.

Tensors are read by canonical name and expected shape. Knows no architecture. Norms are loaded in
loading/norms.py, projections in loading/projections.py; loading/reader.py keeps the account of
what was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import UnsupportedModelError
from headrace.models.loading.norms import NormLoader
from headrace.models.loading.projections import ProjectionLoader
from headrace.ops.experts import ExpertWeight
from headrace.ops.operands import EmbeddingWeight, HeadWeight
from headrace.weights.tensors.latent_heads import JOINED, KEYS, VALUES, single_heads, split
from headrace.weights.tensors.tensor import Tensor


class Loader(NormLoader, ProjectionLoader):
    """A source of the weights of one checkpoint for one backend, which remembers what it handed
    out.
    """

    def embedding(self, name: str, rows: int, width: int) -> EmbeddingWeight:
        """A table that is looked up: of tokens, or of positions."""
        tensor = self.tensor(name, rows, width)
        weight = self._ops.embedding_weight(tensor)
        self._advance(tensor)
        return weight

    def latent_heads(
        self, prefix: str, heads: int, nope: int, value: int, latent: int
    ) -> tuple[HeadWeight, HeadWeight]:
        """Matrices (latent, nope) and (value, latent) of every head of latent attention."""
        if self.has(f"{prefix}.{JOINED}"):
            joined = self.tensor(f"{prefix}.{JOINED}", heads * (nope + value), latent)
            parts = split(joined, heads, nope, value)
            stored: tuple[Tensor, ...] = (joined,)
        else:
            keys = self.tensor(f"{prefix}.{KEYS}", heads, latent, nope)
            values = self.tensor(f"{prefix}.{VALUES}", heads, value, latent)
            parts, stored = (single_heads(keys), single_heads(values)), (keys, values)
        of_keys, of_values = (self._ops.head_weight(matrices) for matrices in parts)
        self.packed_elements += heads * (nope + value) * latent
        self._advance(*stored)
        return of_keys, of_values

    def experts(
        self,
        names: Sequence[str],
        outs: Sequence[int],
        width: int,
        count: int,
        *,
        bias: bool = False,
        routed: bool = True,
    ) -> ExpertWeight:
        """One matrix of each of `count` experts; rows of its parts (out_i, width) stacked.

        names: of the parts, with {} for the number of the expert. bias: whether each part has one.
        routed: False for an expert that every token goes through.
        Raises UnsupportedModelError where their codecs differ.
        """
        experts = [
            [self._matrix(f"{name.format(number)}.weight", out, width)
             for name, out in zip(names, outs, strict=True)]
            for number in range(count)
        ]  # fmt: skip
        parts = [part for parts in experts for part in parts]
        first = parts[0]
        other = next((part for part in parts if part.codec is not first.codec), None)
        if other is not None:
            raise UnsupportedModelError(
                f"{self._checkpoint.path}: tensor {first.name} is {first.codec.name} and "
                f"{other.name} {other.codec.name}; the experts of a layer are computed in one "
                "codec. Use a file whose experts are all of one"
            )
        biases = [
            [self.tensor(f"{name.format(number)}.bias", out)
             for name, out in zip(names, outs, strict=True)]
            for number in range(count)
        ] if bias else None  # fmt: skip
        weight = self._ops.expert_weight(experts, bias=biases)
        values = sum(part.num_values for part in parts)
        parts += [vector for vectors in biases or () for vector in vectors]
        if routed:
            self.routed_elements += values
            self.routed_bytes += sum(part.nbytes for part in parts)
        else:
            self.packed_elements += values
        self._advance(*parts)
        return weight
