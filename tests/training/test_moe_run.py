"""The run of the mixture of experts: begun as the base, beside its control, and gone on with."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from tests.training.toy_training import SHAPE, write_data
from training.models.moe_config import MoEConfig

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training needs PyTorch")

from training import moe  # noqa: E402
from training.loop import checkpoint  # noqa: E402
from training.loop.parallel import Workers  # noqa: E402
from training.models.model import LanguageModel  # noqa: E402

STEP_TOKENS = 2048


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """Of a toy run of training.moe, for which there are data and a base's checkpoint."""
    width = SHAPE.intermediate_size // 3
    mixture = MoEConfig(**asdict(SHAPE), moe_intermediate_size=width, n_routed_experts=4)
    settings = partial(
        moe.Settings,
        step_tokens=STEP_TOKENS,
        length=128,
        turns_share=0.0,
        # The run takes a small part of these, too little to be seen in a few steps.
        muon_learning_rate=0.1,
        adamw_learning_rate=0.02,
    )
    for name, value in (
        ("BASE", SHAPE),
        ("MOE", mixture),
        ("Settings", settings),
        ("SETTLE_LENGTH", 128),
    ):
        monkeypatch.setattr(moe, name, value)
    write_data(tmp_path / "data", n_documents=400)
    torch.manual_seed(5)
    (tmp_path / "base").mkdir()
    saved = tmp_path / "base" / "checkpoint.safetensors"
    checkpoint.save(saved, LanguageModel(SHAPE), [], checkpoint.Progress(), {}, asdict(SHAPE))
    return Namespace(
        data=tmp_path / "data",
        base=tmp_path / "base",
        tokens=12 * STEP_TOKENS,
        control=False,
        bfloat16=False,
        compile=False,
        device="cpu",
    )


def test_it_begins_as_the_base_and_sees_what_the_control_sees(arguments: Namespace) -> None:
    trainer, held_out = moe.build(arguments, Workers())
    control, _ = moe.build(Namespace(**(vars(arguments) | {"control": True})), Workers())
    for each in (trainer, control):
        each.evaluate(held_out.batches[:2], 1)
    assert trainer.progress.heldout_loss == pytest.approx(control.progress.heldout_loss, abs=1e-5)
    one, two = (each.next_batch() for each in (trainer, control))
    assert torch.equal(one.ids, two.ids)


def test_a_resumed_run_has_the_routers_biases_and_learns(
    arguments: Namespace, tmp_path: Path
) -> None:
    def biases(of: moe.MoETrainer) -> list[torch.Tensor]:
        return [router.e_score_correction_bias for router in of.model.routers()]

    trainer, _ = moe.build(arguments, Workers())
    first = trainer.step()
    trainer.save(tmp_path / "checkpoint.safetensors")
    kept = [bias.clone() for bias in biases(trainer)]
    second = trainer.step()
    resumed, _ = moe.build(arguments, Workers())
    resumed.resume(tmp_path / "checkpoint.safetensors")
    for bias, saved, later in zip(biases(resumed), kept, biases(trainer), strict=True):
        assert (bias != 0).any()
        assert torch.equal(bias, saved)
        assert not torch.equal(bias, later)
    assert resumed.step() == pytest.approx(second, abs=1e-6)
    assert all(map(torch.equal, biases(resumed), biases(trainer)))
    losses = [resumed.step() for _ in range(6)]
    assert losses[-1] < first - 0.2
