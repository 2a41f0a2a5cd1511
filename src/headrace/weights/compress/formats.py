"""The layouts of folders that `headrace quantize --format` makes, by name.

Schemes are compressed-tensors' (quantization/quant_scheme.py, PRESET_SCHEMES); llm-compressor finds
the numbers. All of these run on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.errors import ConfigError

Method = Literal["nearest", "gptq", "awq", "smoothquant"]
"""How numbers are found: each rounded for itself; one column after another, the rest making up for
its error (GPTQ); rounded behind columns that were scaled by what enters them (AWQ); by GPTQ behind
columns that were scaled so that activations lose their outliers (SmoothQuant)."""


@dataclass(frozen=True)
class Format:
    """A layout that can be made."""

    scheme: str
    """As compressed-tensors names it."""
    summary: str
    """What is stored, for people."""
    method: Method = "nearest"
    static: bool = False
    """Whether activations have scales that are measured beforehand."""
    group_size: int = 0
    """Values along a row that share a scale; 0 where it is all of it, or the matrix, or a block."""
    sizes: bool = False
    """Whether `--group-size` may give another."""

    @property
    def reads_text(self) -> bool:
        """Whether it is made while the model reads a text."""
        return self.static or self.method != "nearest"


FORMATS: Mapping[str, Format] = {
    "fp8": Format("FP8_DYNAMIC", "FP8, a scale for each row"),
    "fp8-static": Format("FP8", "FP8, one scale; scales of activations measured", static=True),
    "fp8-block": Format("FP8_BLOCK", "FP8, a scale for 128 x 128"),
    "int8": Format("W8A8", "INT8, a scale for each row, activations in INT8"),
    "int8-smoothquant": Format(
        "W8A8", "INT8 behind SmoothQuant, by GPTQ", method="smoothquant"
    ),
    "w8a16": Format("W8A16", "INT8 in groups", group_size=128, sizes=True),
    "w4a16": Format("W4A16", "INT4 in groups", group_size=128, sizes=True),
    "w4a16-asym": Format(
        "W4A16_ASYM", "INT4 in groups with zero points", group_size=128, sizes=True
    ),
    "w4a16-gptq": Format("W4A16", "INT4 in groups, by GPTQ", "gptq", group_size=128, sizes=True),
    "w4a16-awq": Format(
        "W4A16_ASYM", "INT4 in groups with zero points, by AWQ", "awq", group_size=128, sizes=True
    ),
    "w4a8": Format("W4A8", "INT4 in groups, activations in INT8", group_size=128, sizes=True),
    "w4afp8": Format("W4AFP8", "INT4 in groups, activations in FP8", group_size=128, sizes=True),
    "nvfp4": Format(
        "NVFP4", "E2M1 in groups of 16; scales of activations measured", static=True, group_size=16
    ),
    "nvfp4a16": Format("NVFP4A16", "E2M1 in groups of 16", group_size=16),
    "mxfp4": Format("MXFP4", "E2M1 in groups of 32, activations too", group_size=32),
    "mxfp4a16": Format("MXFP4A16", "E2M1 in groups of 32", group_size=32),
}  # fmt: skip
"""By the names that are typed."""


def format_of(name: str) -> Format:
    """The format of a name, in any case. Raises ConfigError for one that is not there."""
    found = FORMATS.get(name.lower())
    if found is None:
        raise ConfigError(f"--format {name[:60]!r} is not made; these are: {', '.join(FORMATS)}")
    return found
