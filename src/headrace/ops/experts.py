"""Mixtures of experts: the rule from a token's router logits to its experts, and their weights.

Plain data, the same for every backend. What a backend computes of it is defined in
docs/kernels.md: the experts of a token and their weights follow from its own logits alone, and so
does the order in which the results of its experts are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from headrace.ops.operands import Activation, Array

RouterScore = Literal["softmax", "sigmoid", "softmax_of_chosen", "sparsemixer"]
"""softmax: over the logits of all experts. sigmoid: of each logit on its own. softmax_of_chosen:
over the logits of the chosen experts only. sparsemixer: of each choice in turn, the softmax over
those logits not chosen yet that are close to the largest of them (see `Routing.jitter`)."""

GroupScore = Literal["max", "top2"]
"""A group's score: that of its best expert, or the sum of its two best."""

MOST_EXPERTS = 1 << 16
"""Experts of one layer, at most. Far above any model; a hostile file ends here."""


@dataclass(frozen=True)
class Routing:
    """The rule from a token's router logits to its experts and their weights.

    ValueError names a field that is out of range. A selection bias is handed beside it: it is
    added to the scores for the choice only.
    """

    num_experts: int
    experts_per_token: int
    """k, at most what the chosen groups hold."""
    score: RouterScore
    normalised: bool
    """Whether the weights of a token are divided by their sum + `epsilon`."""
    epsilon: float = 0.0
    scale: float = 1.0
    """What every weight is multiplied by in the end (routed_scaling_factor)."""
    num_groups: int = 1
    """Equal groups of neighbouring experts."""
    chosen_groups: int = 1
    """Groups with the best scores; experts of the others are never chosen."""
    group_score: GroupScore = "max"
    jitter: float = 0.0
    """Of sparsemixer: a logit takes part where its distance from the largest one that is left is
    at most 2 * jitter of the larger of its own magnitude and that largest one."""

    def __post_init__(self) -> None:
        _check_count("num_experts", self.num_experts, MOST_EXPERTS)
        _check_count("num_groups", self.num_groups, self.num_experts)
        _check_count("chosen_groups", self.chosen_groups, self.num_groups)
        if self.num_experts % self.num_groups:
            raise ValueError(
                f"num_groups {self.num_groups} does not divide num_experts {self.num_experts}"
            )
        left = self.num_experts // self.num_groups * self.chosen_groups
        _check_count("experts_per_token", self.experts_per_token, left)
        if self.score not in get_args(RouterScore):
            raise ValueError(
                f"score {self.score!r} is unknown; supported: {', '.join(get_args(RouterScore))}"
            )
        if self.group_score not in get_args(GroupScore):
            raise ValueError(
                f"group_score {self.group_score!r} is unknown; supported: "
                f"{', '.join(get_args(GroupScore))}"
            )
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon {self.epsilon} is not in [0, inf)")
        if not 0 <= self.jitter < math.inf:
            raise ValueError(f"jitter {self.jitter} is not in [0, inf)")
        if not math.isfinite(self.scale):
            raise ValueError(f"scale {self.scale} is not a finite number")
        if self.score == "sparsemixer" and self.num_groups > 1:
            raise ValueError(f"num_groups {self.num_groups}: sparsemixer knows no groups")


class Routes(NamedTuple):
    """The experts of each of N tokens, in the order of choice: the best first; arrays of the
    backend.

    Among equals the lower index is the better one. A token whose logits hold no order (NaN, or
    with a softmax +inf, or -inf only) has the experts 0 to k - 1 and weights that are NaN.
    """

    experts: Array
    """int32[N, k], distinct in each row."""
    weights: Array
    """f32[N, k]"""

    def times(self, factors: Array) -> Routes:
        """With weights multiplied by f32[N, k] of the same backend."""
        return self._replace(weights=self.weights * factors)


@dataclass(frozen=True)
class ExpertWeight:
    """One matrix of every expert of a layer, as the backend wants them; rows of parts stacked."""

    num_experts: int
    out_features: int
    """Of each expert."""
    in_features: int
    codec: str
    nbytes: int
    """Of all experts together."""
    packed: Any
    """The backend's own."""


@dataclass(frozen=True)
class ExpertMLP:
    """The MLPs of a layer's experts, down(act(gate x) * up x). ValueError for unfit shapes."""

    gate_up: ExpertWeight
    """Rows of the gate first, then those of up."""
    down: ExpertWeight
    activation: Activation
    weigh_input: bool = False
    """Whether a token's weight multiplies an expert's input and not its output."""
    limit: float = 0.0
    """Of `gated_activation`; 0 means none."""

    def __post_init__(self) -> None:
        gate_up, down = self.gate_up, self.down
        if gate_up.num_experts != down.num_experts:
            raise ValueError(
                f"gate_up has {gate_up.num_experts} experts, down has {down.num_experts}"
            )
        if gate_up.out_features != 2 * down.in_features:
            raise ValueError(
                f"gate_up gives {gate_up.out_features} values, which is not twice the "
                f"{down.in_features} that down takes"
            )
        if gate_up.in_features != down.out_features:
            raise ValueError(
                f"gate_up takes {gate_up.in_features} values, down gives {down.out_features}"
            )


@dataclass(frozen=True)
class ExpertCacheStats:
    """Figures of a cache of packed expert matrices, counted since the backend was made."""

    limit_bytes: int
    held_bytes: int
    hits: int
    """Matrices that were packed already when a step needed them."""
    misses: int
    """Matrices that had to be packed first."""
    read_bytes: int
    """Stored bytes that the misses read."""


def _check_count(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ValueError(f"{name} {value} is not in [1, {most}]")
