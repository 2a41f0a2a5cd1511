"""Ways to store weights or the KV cache in fewer bits, and what that was seen to cost."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.catalog.rows.row import Bits, Bytes, Count, Figure, Perplexity, Row, ShareSpan

Family = Literal["gguf", "gguf-mix", "float", "gpu", "kv-cache", "method"]


class Quantization(Row, frozen=True, kw_only=True):
    """A storage kind, a mix of kinds as a GGUF file has it, or a method that makes one."""

    family: Family | None = None
    codec: str | None = None
    """Name of headrace's codec that stores it."""
    bits_per_weight: Bits | None = None
    """Stored bits with all scales; of a mix, what to plan with where no file is at hand."""
    nominal_bits: Bits | None = None
    block_weights: Count | None = None
    calibrated: bool | None = None
    weight_type: str | None = None
    activation_type: str | None = None
    mix_of: tuple[str, ...] = ()
    """The kinds in such a file."""
    native_on: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    file_bits_per_weight: dict[str, Bits] = msgspec.field(default_factory=dict)
    """Of real files, by model."""
    perplexity_delta: dict[str, Perplexity] = msgspec.field(default_factory=dict)
    """Against F16, by model."""
    size_bytes: dict[str, Bytes] = msgspec.field(default_factory=dict)
    """Of whole models, by model."""
    quality_share: ShareSpan | None = None
    """Of the F16 model's score, as published."""
    quality: str | None = None
    method: str | None = None
    paper: str | None = None
    recommended_for: tuple[str, ...] = ()
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
