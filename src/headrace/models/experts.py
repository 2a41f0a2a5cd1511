"""A mixture of experts: a router chooses some of a layer's MLPs for each token, and weighs them.

    h = norm(x)
    experts, weights = route(router(h) [, bias])
    y = residual + scale * (sum of weight * expert(h) over the chosen [+ shared(h)])

A shared expert is one that every token goes through. Where its output has a gate of its own it is a
mixture of one, whose weight is the sigmoid of the gate's product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from headrace.models.blocks import GatedMLP, Step
from headrace.models.config import DecoderConfig, ExpertsConfig
from headrace.models.loader import Loader
from headrace.models.loading.linear import Linear
from headrace.ops.experts import ExpertMLP, Routing
from headrace.ops.operands import Array, Norm

_ALWAYS = Routing(num_experts=1, experts_per_token=1, score="sigmoid", normalised=False)


class ExpertNames(NamedTuple):
    """A family's names for the parts of a mixture, behind the layer's name for it."""

    router: str = "gate"
    expert: str = "experts.{}"
    """One expert, with {} for its number."""
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    bias: str | None = None
    """What is added to the scores for the choice alone; None in families without."""
    bias_is_row: bool = False
    """Whether that is stored as a matrix of one row."""
    shared: str | None = None
    """The shared expert; None in families without."""
    shared_gate: str | None = None
    """The gate of its output; None in families without."""
    router_bias: bool = False
    """Whether the router's product has a bias."""
    expert_bias: bool = False
    """Whether the products of every expert have one."""
    router_scale: str | None = None
    """Weights of a norm of the router's own, over what goes into the mixture, which are then
    multiplied by hidden_size^-1/2; None where the router has the norm of the experts."""
    expert_scale: str | None = None
    """A factor of each expert's weights, once they are normalised; None in families without."""


class Experts:
    """The chosen experts of each token, beside a shared one where there is one."""

    def __init__(
        self,
        router: Linear,
        routing: Routing,
        mlp: ExpertMLP,
        *,
        bias: Array | None = None,
        shared: GatedMLP | GatedExpert | None = None,
        router_norm: Norm | None = None,
        expert_scale: Array | None = None,
    ) -> None:
        self.router = router
        self.routing = routing
        self.mlp = mlp
        self.bias = bias
        self.shared = shared
        self.router_norm = router_norm
        self.expert_scale = expert_scale

    @classmethod
    def load(
        cls,
        config: DecoderConfig,
        experts: ExpertsConfig,
        loader: Loader,
        prefix: str,
        names: ExpertNames,
    ) -> Experts:
        """The mixture whose names begin with `prefix`."""
        count, hidden = experts.routing.num_experts, config.hidden_size
        router = loader.router(f"{prefix}.{names.router}", count, hidden, bias=names.router_bias)
        bias = None
        if names.bias:
            at = f"{prefix}.{names.bias}"
            bias = loader.vector(at, count, is_row=names.bias_is_row, finite=True)
        at = f"{prefix}.{names.expert}"
        mlp = _load_mlp(
            config, loader, at, names, experts.intermediate_size, count=count, routed=True
        )
        mlp = replace(mlp, weigh_input=experts.weigh_input)
        shared: GatedMLP | GatedExpert | None = None
        if names.shared is not None and experts.shared_size:
            at = f"{prefix}.{names.shared}"
            if names.shared_gate is None:
                shared = GatedMLP.load(config, loader, at, width=experts.shared_size)
            else:
                gate = loader.router(f"{prefix}.{names.shared_gate}", 1, hidden)
                mlp_of_one = _load_mlp(
                    config, loader, at, names, experts.shared_size, count=1, routed=False
                )
                shared = GatedExpert(gate, mlp_of_one)
        router_norm = expert_scale = None
        if names.router_scale:
            at, factor = f"{prefix}.{names.router_scale}", float(hidden) ** -0.5
            router_norm = loader.norm_of_vector(at, hidden, config.norm_eps, factor=factor)
        if names.expert_scale:
            expert_scale = loader.vector_if_there(f"{prefix}.{names.expert_scale}", count)
        return cls(
            router,
            experts.routing,
            mlp,
            bias=bias,
            shared=shared,
            router_norm=router_norm,
            expert_scale=expert_scale,
        )

    def __call__(
        self,
        x: Array,
        step: Step,
        *,
        norm: Norm | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """residual + scale * mixture(norm(x)): f32[N, hidden]."""
        ops = step.ops
        h = x if norm is None else ops.norm(x, norm)
        scores = (
            self.router(h) if self.router_norm is None else self.router(x, norm=self.router_norm)
        )
        routes = ops.route(scores, self.routing, bias=self.bias, factors=self.expert_scale)
        if self.shared is not None:
            residual = self.shared(h, step, residual=residual, scale=scale)
        return ops.experts(h, self.mlp, routes, residual=residual, scale=scale)


class GatedExpert:
    """A shared expert whose output is multiplied by sigmoid(gate(x))."""

    def __init__(self, gate: Linear, mlp: ExpertMLP) -> None:
        self.gate = gate
        self.mlp = mlp

    def __call__(
        self, x: Array, step: Step, *, residual: Array | None = None, scale: float = 1.0
    ) -> Array:
        """residual + scale * sigmoid(gate(x)) * mlp(x): f32[N, hidden]."""
        routes = step.ops.route(self.gate(x), _ALWAYS)
        return step.ops.experts(x, self.mlp, routes, residual=residual, scale=scale)


def _load_mlp(
    config: DecoderConfig,
    loader: Loader,
    at: str,
    names: ExpertNames,
    width: int,
    *,
    count: int,
    routed: bool,
) -> ExpertMLP:
    hidden, bias = config.hidden_size, names.expert_bias
    gate_up_names = [f"{at}.{names.gate}", f"{at}.{names.up}"]
    gate_up = loader.experts(gate_up_names, [width, width], hidden, count, bias=bias, routed=routed)
    down = loader.experts([f"{at}.{names.down}"], [hidden], width, count, bias=bias, routed=routed)
    return ExpertMLP(gate_up, down, config.activation)
