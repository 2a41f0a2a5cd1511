"""The mixture of experts: upcycling, its arithmetic, the balance of experts, and its files."""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
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


@pytest.fixture(autouse=True)
def importable_tools() -> Iterator[None]:
    """`tools` belongs to the repository, not to the installed package."""
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def load(name: str) -> ModuleType:
    return importlib.import_module(f"tools.train.{name}")


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch", reason="training needs PyTorch")
    module.set_num_threads(1)
    return module


def make_config(**changes: Any) -> Any:
    shape = SHAPE | {"intermediate_size": 3 * WIDTH, "moe_intermediate_size": WIDTH}
    return load("models.moe_config").MoEConfig(**(shape | changes))


def make_base(torch: Any, seed: int = 1, width: int = 3 * WIDTH) -> Any:
    """A random dense model with weights large enough that every layer matters."""
    torch.manual_seed(seed)
    config = load("models.config").ModelConfig(**SHAPE, intermediate_size=width)
    base = load("models.model").LanguageModel(config)
    with torch.no_grad():
        for parameter in base.parameters():
            if parameter.dim() == 2:
                parameter.mul_(10.0)
    return base


def make_model(torch: Any, seed: int = 2, **changes: Any) -> Any:
    """A random mixture of experts, its biases too."""
    torch.manual_seed(seed)
    model = load("models.moe_model").MoELanguageModel(make_config(**changes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "gate.weight" not in name:
                parameter.normal_(std=0.3)
            if name.endswith("correction_bias"):
                parameter.normal_(std=0.1)
    return model


def upcycled(torch: Any, base: Any, **changes: Any) -> Any:
    torch.manual_seed(3)
    module = load("models.moe_model")
    model = module.MoELanguageModel(make_config(**changes))
    module.upcycle(base, model)
    return model


@pytest.mark.parametrize("settled", [False, True])
def test_upcycling_changes_no_logit(torch: Any, settled: bool) -> None:
    """Of any token, in float32, also after the biases were set."""
    base = make_base(torch)
    model = upcycled(torch, base)
    ids = torch.arange(64).repeat(2, 1)
    if settled:
        model.settle(ids, load("loop.parallel").Workers())
        assert all((router.e_score_correction_bias != 0).any() for router in model.routers())
    with torch.no_grad():
        expected, logits = base(ids), model(ids)
    assert expected.std() > 0.5
    assert torch.allclose(logits, expected, atol=2e-5, rtol=1e-5)


def test_upcycling_survives_ties(torch: Any) -> None:
    """An input that all rows of the router score alike picks one whole group."""
    base = make_base(torch)
    mlp = upcycled(torch, base).model.layers[1].mlp
    with torch.no_grad():
        mlp.gate.weight.copy_(mlp.gate.weight[:1].expand_as(mlp.gate.weight))
        x = torch.randn(1, 50, 32)
        experts, weights = mlp.gate(x[0])
        assert (experts.sort(dim=-1).values == torch.tensor([0, 1])).all()
        assert torch.equal(weights, torch.ones(50, 2))
        expected = base.model.layers[1].mlp(x)
        assert torch.allclose(mlp(x), expected, atol=1e-5, rtol=1e-5)
        assert torch.equal(mlp(torch.zeros(1, 1, 32)), torch.zeros(1, 1, 32))


def test_groups_of_experts_hold_different_parts(torch: Any) -> None:
    base = make_base(torch)
    mlp = upcycled(torch, base).model.layers[2].mlp
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
def test_shapes_that_do_not_add_up(
    torch: Any, width: int, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        upcycled(torch, make_base(torch, width=width), **changes)


def test_more_used_experts_than_there_are() -> None:
    with pytest.raises(ValueError, match="num_experts_per_tok is 9"):
        make_config(num_experts_per_tok=9)


def test_sorted_tokens_give_what_one_token_after_another_gives(torch: Any) -> None:
    """The grouped products against the sum as it is written in papers, and their gradients."""
    mlp = make_model(torch).model.layers[1].mlp
    x = torch.randn(2, 9, 32, requires_grad=True)
    mlp(x).square().sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in mlp.parameters())]
    x.grad = None
    mlp.zero_grad()
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
    expected.square().sum().backward()
    for one, other in zip(
        gradients, [x.grad, *(parameter.grad for parameter in mlp.parameters())], strict=True
    ):
        # An expert that no token chose has a gradient of zeros in one and none in the other.
        assert (one is None) or torch.allclose(
            one, torch.zeros_like(one) if other is None else other, atol=1e-4, rtol=1e-4
        )


def test_every_expert_has_a_gradient_although_nobody_chose_it(torch: Any) -> None:
    """Workers exchange gradients by place: none may be left out on one of them."""
    model = make_model(torch)
    with torch.no_grad():
        for router in model.routers():
            router.e_score_correction_bias.copy_(torch.tensor([9.0, 9.0, *[0.0] * 6]))
    ids = torch.arange(20)[None]
    torch.autograd.backward(model.loss(ids, ids))
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) is name.endswith("correction_bias"), name
    assert not model.model.layers[1].mlp.experts[5].up_proj.weight.grad.any()


def test_balance_moves_biases_towards_equal_loads(torch: Any) -> None:
    model = make_model(torch)
    workers = load("loop.parallel").Workers()
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


def test_loads_are_those_of_all_workers(torch: Any) -> None:
    """Two workers that saw different tokens move their biases alike."""

    class Doubled:
        def sum_over(self, tensors: list[Any]) -> None:
            for tensor in tensors:
                tensor += torch.tensor([100.0, *[0.0] * 7])

    model = make_model(torch)
    ids = torch.arange(64)[None]
    model.loss(ids, ids)
    router = next(iter(model.routers()))
    before = router.e_score_correction_bias[0].item()
    model.balance(0.01, Doubled())
    assert router.e_score_correction_bias[0].item() == pytest.approx(before - 0.01)


def test_settling_makes_loads_alike(torch: Any) -> None:
    model = make_model(torch)
    ids = torch.arange(64).repeat(4, 1).reshape(8, 32)
    model.settle(ids, load("loop.parallel").Workers())
    model.loss(ids, ids)
    first = next(iter(model.routers()))
    assert first.loads.max() < 1.35 * first.loads.mean()


def write_runs(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """Arguments of a toy run of tools.train.moe: data, and a base's checkpoint of its shape."""
    from tests.tools.toy_training import SHAPE as TOY
    from tests.tools.toy_training import write_data

    checkpoint, moe, config = load("loop.checkpoint"), load("moe"), load("models.moe_config")
    write_data(tmp_path / "data", n_documents=400)
    mixture = config.MoEConfig(
        **asdict(TOY), moe_intermediate_size=TOY.intermediate_size // 3, n_routed_experts=4
    )
    monkeypatch.setattr(moe, "BASE", TOY)
    monkeypatch.setattr(moe, "MOE", mixture)
    small = partial(moe.Settings, step_tokens=2048, length=128, turns_share=0.0)
    monkeypatch.setattr(moe, "Settings", small)
    monkeypatch.setattr(moe, "SETTLE_LENGTH", 128)
    torch.manual_seed(5)
    base = load("models.model").LanguageModel(TOY)
    (tmp_path / "base").mkdir()
    saved = tmp_path / "base" / "checkpoint.safetensors"
    checkpoint.save(saved, base, [], checkpoint.Progress(), {}, asdict(TOY))
    return Namespace(
        data=tmp_path / "data", base=tmp_path / "base", tokens=2048 * 12, control=False,
        bfloat16=False, compile=False, device="cpu",
    )  # fmt: skip


def test_the_program_begins_as_the_base_and_resumes(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control sees the same batches; the biases are in the checkpoint."""
    arguments = write_runs(torch, tmp_path, monkeypatch)
    moe, workers = load("moe"), load("loop.parallel").Workers()
    trainer, held_out = moe.build(arguments, workers)
    control, _ = moe.build(Namespace(**(vars(arguments) | {"control": True})), workers)
    for each in (trainer, control):
        each.evaluate(held_out.batches[:2], 1)
    assert trainer.progress.heldout_loss == pytest.approx(control.progress.heldout_loss, abs=1e-5)
    one, two = (each.next_batch() for each in (trainer, control))
    assert torch.equal(one.ids, two.ids)
    first = trainer.step()
    trainer.save(tmp_path / "checkpoint.safetensors")
    second = trainer.step()
    resumed, _ = moe.build(arguments, workers)
    resumed.resume(tmp_path / "checkpoint.safetensors")
    for router, other in zip(trainer.model.routers(), resumed.model.routers(), strict=True):
        assert (router.e_score_correction_bias != 0).any()
        assert not torch.equal(router.e_score_correction_bias, other.e_score_correction_bias)
    assert resumed.step() == pytest.approx(second, abs=1e-6)
    for router, other in zip(trainer.model.routers(), resumed.model.routers(), strict=True):
        assert torch.equal(router.e_score_correction_bias, other.e_score_correction_bias)
    losses = [resumed.step() for _ in range(6)]
    assert losses[-1] < first - 0.2


def test_sizes_of_the_family_s_member(torch: Any) -> None:
    config = load("models.moe_config")
    model = load("models.moe_model").MoELanguageModel(config.MOE)
    base = sum(
        p.numel()
        for p in load("models.model").LanguageModel(load("models.config").BASE).parameters()
    )
    assert sum(p.numel() for p in model.parameters()) == 22_829_216
    routers = sum(p.numel() for router in model.routers() for p in router.parameters())
    assert config.n_active_parameters(config.MOE) == base + routers
    assert config.config_of_shape(config.shape_of(config.MOE)) == config.MOE
    dense = load("models.config").BASE
    assert config.config_of_shape(config.shape_of(dense)) == dense


def write_folder(model: Any, folder: Path) -> Path:
    """What tools.train.export writes, without a tokenizer."""
    from safetensors.numpy import save_file

    folder.mkdir()
    load("export").write_json(folder / "config.json", model.config.to_hugging_face())
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_its_gguf_file_comes_back_as_the_same_folder(torch: Any, tmp_path: Path) -> None:
    from headrace.weights.convert import convert_to_gguf, write_hf_folder
    from headrace.weights.open import open_checkpoint

    model = make_model(torch)
    folder = write_folder(model, tmp_path / "in")
    convert_to_gguf(folder, tmp_path / "m.gguf", "F32")
    write_hf_folder(open_checkpoint(tmp_path / "m.gguf"), tmp_path / "out")
    back = open_checkpoint(tmp_path / "out")
    assert set(back.tensors) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        assert np.array_equal(back.tensors[name].to_f32(), parameter.detach().numpy()), name
    stated = {key: back.config.get(key) for key in asdict(model.config)}
    assert stated == asdict(model.config)


def test_transformers_computes_the_same_logits(torch: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    model = make_model(torch)
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
