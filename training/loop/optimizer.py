"""Muon for the matrices inside the model, AdamW for everything else.

Muon (K. Jordan and others, 2024) replaces the momentum of a matrix by the nearest matrix whose
singular values are all about one, so that rare directions learn as fast as common ones. At this
size it reaches the same loss with clearly fewer tokens than AdamW. The tied table of tokens and
the norms stay with AdamW: their rows are not directions of one map.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from training.loop.parallel import Workers

# The quintic of the reference implementation: its slope at zero is steep, so that five rounds
# bring every singular value into [0.7, 1.2]; closer to one trains no better.
_A, _B, _C = 3.4445, -4.7750, 2.0315
ROUNDS = 5


def orthogonalized(matrix: Tensor) -> Tensor:
    """About U V^T of the singular value decomposition U S V^T of `matrix` [rows, columns].

    By Newton-Schulz iteration in bfloat16: products only, no decomposition.
    """
    x = matrix.bfloat16()
    transposed = x.shape[0] > x.shape[1]
    if transposed:
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return (x.T if transposed else x).float()


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum whose updates are orthogonalized; 2-D parameters only.

    The workers share the iterations: each does its part of the matrices, then all exchange.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        weight_decay: float,
        workers: Workers,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": learning_rate, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(parameters, defaults)
        self.workers = workers

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            updates = [torch.zeros_like(p) for p in parameters]
            for index, (parameter, update) in enumerate(zip(parameters, updates, strict=True)):
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"]
                momentum.lerp_(parameter.grad, 1.0 - group["momentum"])
                if index % self.workers.count == self.workers.rank:
                    ahead = parameter.grad.lerp(momentum, group["momentum"])
                    # Tall matrices need longer steps for the same change of their output.
                    scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                    update.copy_(orthogonalized(ahead) * scale)
            self.workers.sum_over(updates)
            for parameter, update in zip(parameters, updates, strict=True):
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"])


def make_optimizers(
    model: nn.Module,
    workers: Workers,
    *,
    muon_learning_rate: float,
    adamw_learning_rate: float,
    weight_decay: float,
) -> list[torch.optim.Optimizer]:
    """The optimizers for `model`; each group remembers its peak as `peak_lr`."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    # The thin factors of a LoRA adapter (lora.py) are not maps whose directions are to be evened;
    # what a head makes of its features (head_model.py) is.
    of_muon = {
        name
        for name, p in trained
        if p.dim() == 2 and (".layers." in name or ".fc." in name) and ".lora_" not in name
    }
    inner = [p for name, p in trained if name in of_muon]
    other = [p for name, p in trained if name not in of_muon]
    optimizers: list[torch.optim.Optimizer] = []
    if inner:
        optimizers.append(Muon(inner, muon_learning_rate, weight_decay, workers))
    if other:
        optimizers.append(
            torch.optim.AdamW(
                other, lr=adamw_learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
            )
        )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers
