"""The values that say how weights are stored: the format of a matrix, and which matrix has which.

They describe what a folder holds, whether or not anything here computes with it; the engine decides
which of them run, the planner how many bytes they take.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from headrace.weights.storage.module_names import FirstMatch, ModuleNames

Number = Literal["int", "e4m3", "e2m1", "nf4", "fp4"]
"""Whole numbers, OCP's floats of 8 and 4 bits, and the two 16-entry tables of bitsandbytes."""

Scope = Literal["tensor", "channel", "group", "block"]
"""What shares a scale: all of a matrix, a row, `columns` values along a row, or `rows` x `columns`.
"""

Layout = Literal[
    "plain", "compressed", "modelopt", "gptq", "gptq_v2", "awq", "bitsandbytes", "mxfp4"
]
"""How numbers lie in the file: one a byte under the name of the weight (plain); packed in 32-bit
words as compressed-tensors does; two of 4 bits a byte (modelopt); zero points stored less one
(gptq) or as they are (gptq_v2), eight rows in the order 0 2 4 6 1 3 5 7 (awq); blocks of 64 or
more in a row of bytes (bitsandbytes); bytes and exponents apart (mxfp4).
"""

ScaleType = Literal["float", "e4m3", "e8m0"]
"""F32, F16 or BF16; FP8 beside one F32 of the matrix; powers of two in a byte."""

Activations = Literal["", "dynamic", "static"]


@dataclass(frozen=True)
class WeightFormat:
    """The format of one quantised matrix."""

    number: Number
    """Number type of a weight."""
    bits: int
    """Bits of it."""
    scope: Scope
    """What shares a scale."""
    rows: int = 0
    """Rows of a block; 0 for other scopes."""
    columns: int = 0
    """Columns of a group or block; 0 for other scopes."""
    scale: ScaleType = "float"
    """Number type of the scales."""
    symmetric: bool = True
    """Whether values lie around zero; otherwise each scale has a zero point."""
    layout: Layout = "plain"
    """How numbers lie in the file."""
    act_order: bool = False
    """Whether columns are in an order of their own, given by a tensor `g_idx`."""
    activations: Activations = ""
    """When the maker's engine rounds activations to few bits; "" for not at all. It is noted: no
    weight depends on it."""
    rounds_rows: bool = False
    """Whether that is to 8 bits by one scale of a row, as kernels then do too; otherwise these
    round as they do for every kind."""


@dataclass(frozen=True)
class Storage:
    """The statement of how all weights of a folder are stored."""

    method: str
    """The program or method, as `quant_method` names it ("fp8", "modelopt")."""
    default: WeightFormat | None
    """The format of modules that no group lists; None where these are at 16 bits."""
    groups: tuple[tuple[ModuleNames, WeightFormat | None], ...] = ()
    """Formats of modules by name, the first match counts; None for 16 bits."""
    unquantised: ModuleNames = field(default_factory=ModuleNames)
    """Modules at 16 bits, whatever else is stated."""
    cache: str = ""
    """What the KV cache is calibrated for ("FP8"); noted, no weight depends on it."""

    def format_of(self, module: str) -> WeightFormat | None:
        """The format of a linear module's weight; None where it is at 16 bits.

        Modules that are no linear ones (norms, embeddings) are at 16 bits too and not listed.
        Raises UnsupportedModelError where patterns of modules cost too much to match.
        """
        if self.unquantised.covers(module):
            return None
        first = self._first_group.first(module)
        return self.default if first is None else self.groups[first][1]

    @cached_property
    def _first_group(self) -> FirstMatch:
        return FirstMatch([names for names, _ in self.groups])

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Every format, the default first, without repetition."""
        every = (self.default, *(stored for _, stored in self.groups))
        return tuple(dict.fromkeys(stored for stored in every if stored is not None))
