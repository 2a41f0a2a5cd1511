"""Rotary embeddings: which frequencies a config asks for.

Kinds: default, linear (all frequencies divided by a factor) and llama3 (long waves divided,
short ones kept, a blend between). transformers 5 writes `rope_parameters`; older files write
`rope_theta` and `rope_scaling`; GGUF files carry llama3 as a tensor of divisors. All three are
read here. Source of the keys: transformers modeling_rope_utils.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import UnsupportedModelError
from headrace.models.config_reader import ConfigReader
from headrace.weights.rope_rows import llama3_factors

RopeKind = Literal["default", "linear", "llama3"]
KINDS: tuple[RopeKind, ...] = ("default", "linear", "llama3")


ROPE_FACTOR_NAMES = (
    "rope_freqs.weight",
    "rope_factors_short.weight",
    "rope_factors_long.weight",
)
"""GGUF's tensors of divisors, in the order of RopeFactors; Hugging Face has them in the config."""


class RopeFactors(NamedTuple):
    """Divisors of the frequencies stored with the weights, float32[rotary_dim / 2] each."""

    all: npt.NDArray[np.float32] | None = None
    short: npt.NDArray[np.float32] | None = None
    long: npt.NDArray[np.float32] | None = None


class Rotation(NamedTuple):
    """Radians per position, float64[rotary_dim / 2]; cos and sin are times `attention_factor`."""

    frequencies: npt.NDArray[np.float64]
    attention_factor: float


@dataclass(frozen=True)
class RopeConfig:
    """Frequencies of one kind. Fields past `factor` are llama3's; lengths in tokens."""

    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192

    @classmethod
    def read(cls, config: ConfigReader, *, default_theta: float = 10000.0) -> RopeConfig:
        """From `rope_parameters`, or `rope_scaling` and `rope_theta`, whichever the file has."""
        config.expect("partial_rotary_factor", float, (1.0,), 1.0)
        newer, older = config.section("rope_parameters"), config.section("rope_scaling")
        parts = [part for part in (newer, older) if part is not None]
        thetas = {
            part.positive("rope_theta")
            for part in (config, *parts)
            if part.optional("rope_theta", float) is not None
        }
        if len(thetas) > 1:
            raise UnsupportedModelError(
                f"config states rope_theta more than once, as {sorted(thetas)}; keep one of them"
            )
        found = [cls._read_section(part) for part in parts]
        if len(found) == 2 and found[0] != found[1]:
            raise UnsupportedModelError(
                "config keys rope_parameters and rope_scaling contradict each other: "
                f"{found[0]} and {found[1]}; keep one of them"
            )
        return cls(theta=thetas.pop() if thetas else default_theta, **(found[0] if found else {}))

    @classmethod
    def _read_section(cls, part: ConfigReader) -> dict[str, Any]:
        kind = part.get("rope_type", str, part.get("type", str, "default"))
        if kind not in KINDS:
            part.refuse("rope_type", kind, ", ".join(KINDS))
        part.expect("partial_rotary_factor", float, (1.0,), 1.0)
        fields: dict[str, Any] = {"kind": kind}
        if kind != "default":
            fields["factor"] = part.positive("factor")
            if fields["factor"] < 1:
                part.refuse("factor", fields["factor"], "numbers of at least 1")
        if kind == "linear":
            part.unused("original_max_position_embeddings")  # the factor alone says it all
        if kind == "llama3":
            fields["low_freq_factor"] = part.positive("low_freq_factor")
            fields["high_freq_factor"] = part.positive("high_freq_factor")
            fields["original_max_positions"] = part.size("original_max_position_embeddings")
            if not fields["low_freq_factor"] < fields["high_freq_factor"]:
                part.refuse(
                    "high_freq_factor", fields["high_freq_factor"], "more than low_freq_factor"
                )
        return fields

    def rotary_dim(self, head_dim: int) -> int:
        """Dimensions of a head that are rotated."""
        return head_dim

    def rotation(
        self,
        head_dim: int,
        factors: RopeFactors | None = None,
        max_positions: int | None = None,
    ) -> Rotation:
        """Frequencies for heads of this width.

        factors: those stored with the weights. Divisors of llama3 are float32 as well when they
        come from the config, so that both kinds of file give the same angles.
        max_positions: the longest request that will be run, in tokens.
        """
        plain = self.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        divisors = None if factors is None else factors.all
        if self.kind == "linear":
            plain = plain / self.factor
        if self.kind == "llama3":
            if divisors is not None:
                raise UnsupportedModelError(
                    "rope scaling is stated twice: llama3 in the config and rope_freqs.weight "
                    "among the tensors; remove one of them"
                )
            divisors = llama3_factors(head_dim, self.theta, self._llama3())
        return Rotation(plain if divisors is None else plain / divisors.astype(np.float64), 1.0)

    def _llama3(self) -> dict[str, float]:
        return {
            "factor": self.factor,
            "low_freq_factor": self.low_freq_factor,
            "high_freq_factor": self.high_freq_factor,
            "original_max_position_embeddings": self.original_max_positions,
        }
