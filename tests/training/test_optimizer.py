"""The optimizers: Muon evens out directions, shares its work, and AdamW has what is left."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from tests.training.toy_training import SHAPE

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training needs PyTorch")

from training.loop import optimizer  # noqa: E402
from training.loop.parallel import Workers  # noqa: E402
from training.models.model import LanguageModel  # noqa: E402


@pytest.mark.parametrize("shape", [(48, 48), (32, 80), (80, 32)])
def test_orthogonalized_keeps_directions_and_evens_out_sizes(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(2)
    rank = min(shape)
    left = torch.linalg.qr(torch.randn(shape[0], rank, generator=generator)).Q
    right = torch.linalg.qr(torch.randn(shape[1], rank, generator=generator)).Q
    sizes = torch.linspace(0.5, 4.0, rank)
    found = optimizer.orthogonalized(left @ torch.diag(sizes) @ right.T)
    assert found.dtype == torch.float32 and found.shape == shape
    # In the basis of the decomposition the result is about diagonal, with sizes about one.
    inside = left.T @ found @ right
    assert (inside.diagonal() > 0.6).all() and (inside.diagonal() < 1.3).all()
    assert (inside - torch.diag(inside.diagonal())).abs().max() < 0.1
    assert (found - left @ inside @ right.T).abs().max() < 0.05


class Exchange:
    """What `Workers.sum_over` needs between threads of one process: all add, then all read."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=30)
        self.offered: dict[int, list[Any]] = {}

    def sum_over(self, rank: int, tensors: list[Any]) -> None:
        self.offered[rank] = [tensor.clone() for tensor in tensors]
        self.barrier.wait()
        for index, tensor in enumerate(tensors):
            tensor.copy_(sum(offered[index] for offered in self.offered.values()))
        self.barrier.wait()


@dataclass(frozen=True, kw_only=True)
class ThreadWorkers(Workers):
    """Workers that are threads."""

    exchange: Exchange

    def sum_over(self, tensors: Any) -> None:
        self.exchange.sum_over(self.rank, list(tensors))


def muon_weights(workers: Workers) -> list[Any]:
    """Three matrices after three steps of Muon on gradients that are always the same."""
    generator = torch.Generator().manual_seed(4)
    weights = [
        torch.nn.Parameter(torch.randn(shape, generator=generator))
        for shape in ((16, 16), (8, 24), (24, 8))
    ]
    muon = optimizer.Muon(weights, 0.02, 0.1, workers)
    for _ in range(3):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator)
        muon.step()
    return [weight.detach() for weight in weights]


def test_two_workers_share_the_work_of_muon_and_get_what_one_does() -> None:
    alone = muon_weights(Workers())
    exchange = Exchange(2)
    found: dict[int, list[Any]] = {}

    def work(rank: int) -> None:
        found[rank] = muon_weights(ThreadWorkers(rank, 2, exchange=exchange))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [0, 1]
    for weights in found.values():
        for one, other in zip(weights, alone, strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=0)


def test_matrices_inside_the_layers_go_to_muon_and_the_rest_to_adamw() -> None:
    model = LanguageModel(SHAPE)
    model.model.norm.weight.requires_grad_(False)
    muon, adamw = optimizer.make_optimizers(
        model, Workers(), muon_learning_rate=0.02, adamw_learning_rate=0.004, weight_decay=0.1
    )
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    inner = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    other = {names[id(p)] for group in adamw.param_groups for p in group["params"]}
    assert len(inner) == 7 * SHAPE.num_hidden_layers and all(".layers." in name for name in inner)
    assert inner | other == set(names.values()) - {"model.norm.weight"}
    assert "model.embed_tokens.weight" in other
    assert [group["peak_lr"] for group in muon.param_groups] == [0.02]
