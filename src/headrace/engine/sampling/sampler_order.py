"""Which samplers of a request do something, and in which order.

A sampler whose parameters are neutral changes nothing, wherever it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.params import SamplingParams

if TYPE_CHECKING:
    from headrace.ops.sampling_rows import Stage

NEUTRAL: dict[str, dict[str, tuple[float, ...]]] = {
    "penalties": {
        "repetition_penalty": (1.0,),
        "frequency_penalty": (0.0,),
        "presence_penalty": (0.0,),
    },
    "temperature": {"temperature": (1.0,)},
    "min_p": {"min_p": (0.0,)},
    "top_k": {"top_k": (0, -1)},
    "top_p": {"top_p": (1.0,)},
}
"""The parameters of each sampler, with the values for which it does nothing."""


def acting(params: SamplingParams, sampler: str) -> list[str]:
    """The parameters of `sampler` that are not neutral."""
    return [name for name, none in NEUTRAL[sampler].items() if getattr(params, name) not in none]


def acts(params: SamplingParams, sampler: str) -> bool:
    """Whether `sampler`, where it is applied, does anything."""
    return bool(acting(params, sampler))


def order_of(params: SamplingParams) -> tuple[Stage, ...]:
    """The samplers of a request that do something, in its order."""
    return tuple(name for name in params.samplers if acts(params, name))  # type: ignore[misc]
