"""The mixture of experts in plain PyTorch, with Hugging Face's tensor names, and its upcycling.

A layer's feed-forward becomes a shared expert and several routed ones, of which a router picks a
few per token. Tokens are sorted by expert, so that all experts together are two grouped products
(about as fast as one product over the same number of rows).

Experts are kept busy without a loss of their own (L. Wang and others, 2024): a bias per expert is
added to the scores for the choice alone, and after each step it goes up a little for experts that
had less than their part and down for the others. No gradient of such a term disturbs the model.

Shapes: N tokens, D hidden, E routed experts, K of them used per token, F width of an expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.loop.parallel import Workers
from training.models.model import FeedForward, LanguageModel
from training.models.moe_config import MoEConfig

# Spread of a router's rows at the start. Normed inputs of width 512 then give logits a spread of
# about one: scores tell experts apart, and no sigmoid is flat yet.
ROUTER_STD = 0.05
# Rounds of settling the biases on one batch, and how the step of the biases falls over them.
SETTLE_ROUNDS, SETTLE_FIRST, SETTLE_LAST = 200, 0.05, 0.0005


class Choice(NamedTuple):
    """experts: int64 [N, K]. weights: float32 [N, K], what their outputs are multiplied by."""

    experts: Tensor
    weights: Tensor


def chosen(scores: Tensor, bias: Tensor, n_used: int) -> Tensor:
    """The `n_used` best experts int64 [N, K] by scores [N, E] plus bias [E].

    Of equal ones the first is taken, which `top-k` does not promise: upcycling needs it.
    """
    order = (scores + bias).sort(dim=-1, descending=True, stable=True)
    return order.indices[:, :n_used]


class Router(nn.Module):
    """Scores of the routed experts and the choice among them."""

    loads: Tensor

    def __init__(self, config: MoEConfig) -> None:
        super().__init__()
        self.n_used = config.num_experts_per_tok
        self.scale = config.routed_scaling_factor
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        nn.init.normal_(self.weight, std=ROUTER_STD)
        # A parameter, so that checkpoints hold it; the balance moves it, and no gradient does.
        self.e_score_correction_bias = nn.Parameter(
            torch.zeros(config.n_routed_experts), requires_grad=False
        )
        loads = torch.zeros(config.n_routed_experts)
        self.register_buffer("loads", loads, persistent=False)

    def scores(self, x: Tensor) -> Tensor:
        """float32 [N, E] for hidden states [N, D]; bfloat16 would make ties of near ones."""
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.float(), self.weight).sigmoid()

    def forward(self, x: Tensor) -> Choice:
        scores = self.scores(x)
        experts = chosen(scores.detach(), self.e_score_correction_bias, self.n_used)
        weights = scores.gather(1, experts)
        # 1e-20 as in transformers: no two sigmoids of finite numbers are both zero otherwise.
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) * self.scale
        return Choice(experts, weights)


class Experts(nn.Module):
    """A shared expert, and routed ones behind a router; hidden states [B, T, D] to the same."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__()
        width = config.moe_intermediate_size
        one = replace(config, intermediate_size=width)
        shared = replace(config, intermediate_size=width * config.n_shared_experts)
        self.gate = Router(config)
        self.experts = nn.ModuleList(FeedForward(one) for _ in range(config.n_routed_experts))
        self.shared_experts = FeedForward(shared)

    def stacked(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Gate and up [E, D, 2F], and down [E, F, D], of all experts."""
        gate_up = [torch.cat((e.gate_proj.weight, e.up_proj.weight)) for e in self.experts]
        down = [e.down_proj.weight for e in self.experts]
        first, second = (torch.stack(part).to(kind).transpose(1, 2) for part in (gate_up, down))
        return first, second

    def forward(self, x: Tensor) -> Tensor:
        shared: Tensor = self.shared_experts(x)
        flat = x.flatten(0, -2)
        experts, weights = self.gate(flat)
        n_used = experts.shape[1]
        picked = experts.flatten()
        numbers = torch.arange(len(self.experts), device=x.device)
        loads = (picked[:, None] == numbers).sum(dim=0)
        if torch.is_grad_enabled():
            self.gate.loads += loads
        # Rows in order of their expert; row r of the sorted ones is of token order[r] // K.
        order = picked.argsort(stable=True)
        tokens = order // n_used
        ends = loads.cumsum(0).to(torch.int32)
        # In the kind of the shared expert's output: autocast does not reach grouped products.
        gate_up, down = self.stacked(shared.dtype)
        inner = F.grouped_mm(flat.to(shared.dtype)[tokens], gate_up, offs=ends)
        gate, up = inner.chunk(2, dim=-1)
        outputs = F.grouped_mm(F.silu(gate) * up, down, offs=ends)
        outputs = outputs * weights.flatten()[order][:, None].to(outputs.dtype)
        routed = torch.zeros_like(flat, dtype=shared.dtype).index_add(0, tokens, outputs)
        return shared + routed.view_as(shared)


class MoELanguageModel(LanguageModel):
    """LanguageModel with experts in its layers from `first_k_dense_replace` on."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__(config)
        self.moe_config = config
        for layer in self.model.layers[config.first_k_dense_replace :]:
            layer.mlp = Experts(config)

    def routers(self) -> Iterator[Router]:
        """The routers, in the order of their layers."""
        for layer in self.model.layers:
            if isinstance(layer.mlp, Experts):
                yield layer.mlp.gate

    @torch.no_grad()
    def balance(self, rate: float, workers: Workers) -> float:
        """Move each expert's bias by `rate` towards its part of the tokens since the last call.

        Returns the largest load of an expert as a multiple of its part, over all layers.
        """
        routers = list(self.routers())
        workers.sum_over([router.loads for router in routers])
        largest = 0.0
        for router in routers:
            part = router.loads.mean()
            router.e_score_correction_bias += rate * (part - router.loads).sign()
            largest = max(largest, float(router.loads.max() / part.clamp(min=1.0)))
            router.loads.zero_()
        return largest

    @torch.no_grad()
    def settle(self, ids: Tensor, workers: Workers) -> None:
        """Set the biases so that `ids` [B, T], this worker's share, use all experts alike.

        Each layer is settled on its own inputs as they are before any bias is changed.
        """
        inputs: dict[Router, Tensor] = {}

        def note(router: nn.Module, arguments: tuple[Tensor]) -> None:
            assert isinstance(router, Router)
            inputs[router] = arguments[0]

        hooks = [router.register_forward_pre_hook(note) for router in self.routers()]
        self.model(ids)
        for hook in hooks:
            hook.remove()
        fall = (SETTLE_LAST / SETTLE_FIRST) ** (1 / (SETTLE_ROUNDS - 1))
        for router, x in inputs.items():
            scores, bias = router.scores(x), router.e_score_correction_bias
            for step in range(SETTLE_ROUNDS):
                picked = chosen(scores, bias, router.n_used).flatten()
                loads = torch.bincount(picked, minlength=len(bias)).float()
                workers.sum_over([loads])
                bias += SETTLE_FIRST * fall**step * (loads.mean() - loads).sign()


@torch.no_grad()
def upcycle(base: LanguageModel, model: MoELanguageModel) -> None:
    """Put `base` into `model` so that both give the same logits.

    The columns of a feed-forward are cut in parts as wide as an expert: the first ones become the
    shared expert, the K others are what a token's experts have to hold together. So expert e holds
    part e mod K, and the K experts of a group share one random row of the router: their scores are
    equal, a group is chosen as a whole, and each weighs routed_scaling_factor / K = 1.

    No noise is added to the copies. Groups see different tokens from the first step on, and within
    a group the experts are different functions with different gradients, so that nothing is
    symmetric; noise would only spoil the equality.

    Raises ValueError when the shapes do not add up.
    """
    config, width = model.moe_config, model.moe_config.moe_intermediate_size
    n_used, n_shared = config.num_experts_per_tok, config.n_shared_experts
    if base.config.intermediate_size != width * (n_shared + n_used):
        raise ValueError(
            f"the base's intermediate_size is {base.config.intermediate_size}; {n_shared} shared "
            f"and {n_used} used experts of {width} hold {width * (n_shared + n_used)}: make them "
            "equal"
        )
    if config.n_routed_experts % n_used or config.routed_scaling_factor != n_used:
        raise ValueError(
            f"{config.n_routed_experts} experts, {n_used} used, scaled by "
            f"{config.routed_scaling_factor}: give a multiple of the used ones, scaled by their "
            "number"
        )
    weights = dict(base.named_parameters())
    for name, parameter in model.named_parameters():
        if ".mlp." not in name or name in weights:
            parameter.copy_(weights[name])
    for layer, source in zip(model.model.layers, base.model.layers, strict=True):
        if not isinstance(layer.mlp, Experts):
            continue
        shared = n_shared * width
        copy_columns(source.mlp, layer.mlp.shared_experts, 0)
        for index, expert in enumerate(layer.mlp.experts):
            copy_columns(source.mlp, expert, shared + index % n_used * width)
        rows = layer.mlp.gate.weight[: config.n_routed_experts // n_used].clone()
        layer.mlp.gate.weight.copy_(rows.repeat_interleave(n_used, dim=0))
        layer.mlp.gate.e_score_correction_bias.zero_()


def copy_columns(source: FeedForward, target: FeedForward, first: int) -> None:
    """Columns of `source` from `first` on, as many as `target` has."""
    last = first + target.gate_proj.out_features
    target.gate_proj.weight.copy_(source.gate_proj.weight[first:last])
    target.up_proj.weight.copy_(source.up_proj.weight[first:last])
    target.down_proj.weight.copy_(source.down_proj.weight[:, first:last])
