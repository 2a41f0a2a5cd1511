"""Several files of one model beside a reference: what each costs and what it still is worth.

The front holds the files that no other beats: none is at most as large and at most as far from the
reference, and less in one of both. The reference is outside of the comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from headrace.eval.divergence import Divergence
from headrace.weights.checkpoint import Checkpoint


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Size and kinds of a file."""

    name: str
    """As it was named."""
    nbytes: int
    """Of all tensors as stored, scales and tables included."""
    weights: int
    """Values of all tensors."""
    bits_per_weight: float
    kinds: dict[str, int]
    """Bytes of tensors by kind, the largest first."""


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """The decode speed of one request."""

    tokens_per_s: float
    """Median of the repeats."""
    least_tokens_per_s: float
    most_tokens_per_s: float
    mbu: float | None
    """Share of the machine's read bandwidth; None where `headrace bench machine` has not measured
    it for this level and number of threads."""


class ReportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with what was measured of it."""

    facts: FileFacts
    divergence: Divergence | None
    """From the reference; None of the reference itself."""
    speed: Speed | None
    """None where it was not measured."""
    front: bool
    """Whether no other file is better."""


class QualityReport(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one model beside a reference."""

    text: str
    """The name of the text."""
    base: ReportedFile
    files: tuple[ReportedFile, ...]
    measured_at: str
    """ISO 8601, UTC."""
    machine: str
    version: str


class FileMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """A file with its measurements, before it is compared with the others."""

    facts: FileFacts
    divergence: Divergence
    speed: Speed | None


def file_facts(name: str, checkpoint: Checkpoint) -> FileFacts:
    """Counted from the checkpoint's tensors."""
    kinds: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        kinds[tensor.codec.name] += tensor.nbytes
    weights = sum(tensor.num_values for tensor in checkpoint.tensors.values())
    return FileFacts(
        name=name,
        nbytes=checkpoint.nbytes,
        weights=weights,
        bits_per_weight=8 * checkpoint.nbytes / max(1, weights),
        kinds=dict(kinds.most_common()),
    )


def with_front(files: Sequence[FileMeasurement]) -> tuple[ReportedFile, ...]:
    """The files in order of their sizes, each with whether it is on the front."""
    reported = [
        ReportedFile(
            facts=file.facts,
            divergence=file.divergence,
            speed=file.speed,
            front=not any(_beats(other, file) for other in files),
        )
        for file in files
    ]
    return tuple(sorted(reported, key=lambda file: file.facts.nbytes))


def _beats(other: FileMeasurement, file: FileMeasurement) -> bool:
    sizes = other.facts.nbytes, file.facts.nbytes
    apart = other.divergence.kl_mean, file.divergence.kl_mean
    no_worse = sizes[0] <= sizes[1] and apart[0] <= apart[1]
    return no_worse and (sizes[0] < sizes[1] or apart[0] < apart[1])
