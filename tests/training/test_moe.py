"""The mixture of experts: upcycling, its arithmetic, the balance of experts, and its files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from headrace.weights.conversion.convert import convert_to_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from training.models.config import BASE, ModelConfig
from training.models.moe_config import (
    MOE,
    MoEConfig,
    config_of_shape,
    n_active_parameters,
    shape_of,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training needs PyTorch")

from training.export import write_json  # noqa: E402
from training.loop.parallel import Workers  # noqa: E402
from training.models.model import LanguageModel  # noqa: E402
from training.models.moe_model import MoELanguageModel, upcycle  # noqa: E402

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
}
WIDTH = 16


def make_config(**changes: Any) -> Any:
    shape = SHAPE | {"intermediate_size": 3 * WIDTH, "moe_intermediate_size": WIDTH}
    return MoEConfig(**(shape | changes))


def make_base(seed: int = 1, width: int = 3 * WIDTH) -> Any:
    """A random dense model with weights large enough that every layer matters."""
    torch.manual_seed(seed)
    config = ModelConfig(**SHAPE, intermediate_size=width)
    base = LanguageModel(config)
    with torch.no_grad():
        for parameter in base.parameters():
            if parameter.dim() == 2:
                parameter.mul_(10.0)
    return base


def make_model(seed: int = 2, **changes: Any) -> Any:
    """A random mixture of experts, its biases too."""
    torch.manual_seed(seed)
    model = MoELanguageModel(make_config(**changes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "gate.weight" not in name:
                parameter.normal_(std=0.3)
            if name.endswith("correction_bias"):
                parameter.normal_(std=0.1)
    return model


def upcycled(base: Any, **changes: Any) -> Any:
    torch.manual_seed(3)
    model = MoELanguageModel(make_config(**changes))
    upcycle(base, model)
    return model


@pytest.mark.parametrize("settled", [False, True])
def test_upcycling_changes_no_logit(settled: bool) -> None:
    """Of any token, in float32, also after the biases were set."""
    base = make_base()
    model = upcycled(base)
    ids = torch.arange(64).repeat(2, 1)
    if settled:
        model.settle(ids, Workers())
        assert all((router.e_score_correction_bias != 0).any() for router in model.routers())
    with torch.no_grad():
        expected, logits = base(ids), model(ids)
    assert expected.std() > 0.5
    assert torch.allclose(logits, expected, atol=2e-5, rtol=1e-5)


def test_upcycling_survives_ties() -> None:
    """An input that all rows of the router score alike picks one whole group."""
    base = make_base()
    mlp = upcycled(base).model.layers[1].mlp
    with torch.no_grad():
        mlp.gate.weight.copy_(mlp.gate.weight[:1].expand_as(mlp.gate.weight))
        x = torch.randn(1, 50, 32)
        experts, weights = mlp.gate(x[0])
        assert (experts.sort(dim=-1).values == torch.tensor([0, 1])).all()
        assert torch.equal(weights, torch.ones(50, 2))
        expected = base.model.layers[1].mlp(x)
        assert torch.allclose(mlp(x), expected, atol=1e-5, rtol=1e-5)
        assert torch.equal(mlp(torch.zeros(1, 1, 32)), torch.zeros(1, 1, 32))


def test_groups_of_experts_hold_different_parts() -> None:
    base = make_base()
    mlp = upcycled(base).model.layers[2].mlp
    source = base.model.layers[2].mlp.up_proj.weight
    parts = source.split(WIDTH)
    assert torch.equal(mlp.shared_experts.up_proj.weight, parts[0])
    for index, expert in enumerate(mlp.experts):
        assert torch.equal(expert.up_proj.weight, parts[1 + index % 2])
    rows = mlp.gate.weight
    assert torch.equal(rows[0::2], rows[1::2])
    assert len({tuple(row.tolist()) for row in rows}) == 4


@pytest.mark.parametrize(
    ("width", "changes", "told"),
    [
        (4 * WIDTH, {}, "intermediate_size is 64"),
        (3 * WIDTH, {"n_routed_experts": 7}, "7 experts, 2 used"),
        (3 * WIDTH, {"routed_scaling_factor": 1.0}, "scaled by 1.0"),
    ],
)
def test_shapes_that_do_not_add_up(width: int, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        upcycled(make_base(width=width), **changes)


def test_more_used_experts_than_there_are() -> None:
    with pytest.raises(ValueError, match="num_experts_per_tok is 9"):
        make_config(num_experts_per_tok=9)


def test_sorted_tokens_give_what_one_token_after_another_gives() -> None:
    """The grouped products against the sum as it is written in papers, and their gradients."""
    mlp = make_model().model.layers[1].mlp
    x = torch.randn(2, 9, 32, requires_grad=True)

    def gradients(output: Any) -> list[Any]:
        """Zeros where there is none: of an expert that no token chose, sorted or not."""
        leaves = [x, *(p for p in mlp.parameters() if p.requires_grad)]
        loss = output.square().sum()
        return list(torch.autograd.grad(loss, leaves, materialize_grads=True))

    rows = []
    for token in x.flatten(0, 1):
        scores = (mlp.gate.weight @ token).sigmoid()
        best = (scores + mlp.gate.e_score_correction_bias).topk(2).indices
        weights = scores[best] / scores[best].sum() * 2.0
        chosen = zip(weights, best.tolist(), strict=True)
        routed = sum(weight * mlp.experts[index](token) for weight, index in chosen)
        rows.append(mlp.shared_experts(token) + routed)
    expected = torch.stack(rows).view_as(x)
    assert torch.allclose(mlp(x), expected, atol=1e-5)
    for one, other in zip(gradients(mlp(x)), gradients(expected), strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)


def test_every_expert_has_a_gradient_although_nobody_chose_it() -> None:
    """Workers exchange gradients by place: none may be left out on one of them."""
    model = make_model()
    with torch.no_grad():
        for router in model.routers():
            router.e_score_correction_bias.copy_(torch.tensor([9.0, 9.0, *[0.0] * 6]))
    ids = torch.arange(20)[None]
    torch.autograd.backward(model.loss(ids, ids))
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) is name.endswith("correction_bias"), name
    assert not model.model.layers[1].mlp.experts[5].up_proj.weight.grad.any()


def test_balance_moves_biases_towards_equal_loads() -> None:
    model = make_model()
    workers = Workers()
    ids = torch.arange(64)[None]
    model.loss(ids, ids)
    router = next(iter(model.routers()))
    loads, before = router.loads.clone(), router.e_score_correction_bias.clone()
    assert loads.sum() == 64 * 2
    largest = model.balance(0.01, workers)
    moved = router.e_score_correction_bias - before
    assert torch.allclose(moved, 0.01 * (loads.mean() - loads).sign(), atol=1e-7)
    assert largest >= float(loads.max() / loads.mean())
    assert not router.loads.any()
    for _ in range(120):
        model.loss(ids, ids)
        largest = model.balance(0.005, workers)
    assert largest < 1.5
    with torch.no_grad():
        model.loss(ids, ids)
    assert not router.loads.any(), "held-out text must not count"


def test_loads_are_those_of_all_workers() -> None:
    """Two workers that saw different tokens move their biases alike."""

    class Doubled:
        def sum_over(self, tensors: list[Any]) -> None:
            for tensor in tensors:
                tensor += torch.tensor([100.0, *[0.0] * 7])

    model = make_model()
    ids = torch.arange(64)[None]
    model.loss(ids, ids)
    router = next(iter(model.routers()))
    before = router.e_score_correction_bias[0].item()
    model.balance(0.01, Doubled())
    assert router.e_score_correction_bias[0].item() == pytest.approx(before - 0.01)


def test_settling_makes_loads_alike() -> None:
    model = make_model()
    ids = torch.arange(64).repeat(4, 1).reshape(8, 32)
    model.settle(ids, Workers())
    model.loss(ids, ids)
    first = next(iter(model.routers()))
    assert first.loads.max() < 1.35 * first.loads.mean()


def test_sizes_of_the_familys_member() -> None:
    def size(module: Any) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    model = MoELanguageModel(MOE)
    assert size(model) == 22_829_216
    routers = sum(map(size, model.routers()))
    assert n_active_parameters(MOE) == size(LanguageModel(BASE)) + routers
    for config in (MOE, BASE):
        assert config_of_shape(shape_of(config)) == config


def write_folder(model: Any, folder: Path) -> Path:
    """What training.export writes, without a tokenizer."""
    folder.mkdir()
    write_json(folder / "config.json", model.config.to_hugging_face())
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_its_gguf_file_comes_back_as_the_same_folder(tmp_path: Path) -> None:
    model = make_model()
    folder = write_folder(model, tmp_path / "in")
    convert_to_gguf(folder, tmp_path / "m.gguf", "F32")
    write_hf_folder(open_checkpoint(tmp_path / "m.gguf"), tmp_path / "out")
    back = open_checkpoint(tmp_path / "out")
    assert set(back.tensors) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        assert np.array_equal(back.tensors[name].to_f32(), parameter.detach().numpy()), name
    stated = {key: back.config.get(key) for key in asdict(model.config)}
    assert stated == asdict(model.config)


def test_transformers_computes_the_same_logits(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    model = make_model()
    folder = write_folder(model, tmp_path / "in")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype="float32"
    ).eval()
    assert type(theirs).__name__ == "Glm4MoeForCausalLM"
    ids = torch.arange(60)[None]
    with torch.no_grad():
        logits, expected = model(ids), theirs(ids).logits
    assert expected.std() > 0.5
    assert torch.allclose(logits, expected, atol=1e-4)
