"""The trainer: its schedule, its batches, what a step adds up to, and that resuming is exact."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.toy_training import SHAPE, write_data
from training.models.config import read_note

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training needs PyTorch")

from safetensors.torch import load_file, save_file  # noqa: E402

from tests.training import toy_member  # noqa: E402
from training.data.packing import Sampler, windows  # noqa: E402
from training.loop.launch import arguments_of, launch  # noqa: E402
from training.loop.parallel import Workers  # noqa: E402
from training.loop.trainer import MAX_STEP_S, Settings, Trainer, run  # noqa: E402
from training.models.model import LanguageModel  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
STEP_TOKENS = 128
N_STEPS = 6


def settings_of(**others: Any) -> Settings:
    settings = Settings(
        tokens=N_STEPS * STEP_TOKENS,
        step_tokens=STEP_TOKENS,
        pass_tokens=64,
        length=16,
        long_length=32,
        bfloat16=False,
        compile=False,
    )
    return replace(settings, **others)


def trainer_of(**others: Any) -> Trainer:
    """A Trainer of a toy on two toy streams, always the same one."""
    torch.manual_seed(7)
    model = LanguageModel(SHAPE)
    sources = {
        "code": Sampler(torch.arange(3000, dtype=torch.int32) * 7 % 311, seed=3),
        "turns": Sampler(torch.arange(900, dtype=torch.int32) * 5 % 97, seed=4),
    }
    settings = settings_of(**others)
    return Trainer(model, model.loss, settings, sources, asdict(SHAPE), Workers())


def test_the_schedule_warms_up_falls_and_lengthens() -> None:
    settings = Settings(tokens=1)
    rates = [settings.rate_at(share / 100) for share in range(101)]
    assert 0 < rates[0] < rates[1] < rates[2] == max(rates) == 1.0
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[100] == pytest.approx(settings.final_share)
    assert settings.rate_at(1.5) == pytest.approx(settings.final_share)
    assert [settings.length_at(share) for share in (0.0, 0.89, 0.9, 1.0)] == [512, 512, 2048, 2048]
    assert [settings.turns_at(share) for share in (0.0, 0.59, 0.6)] == [0.0, 0.0, 0.2]


def test_batches_are_of_the_schedules_shape_and_sources() -> None:
    trainer = trainer_of(turns_share=0.25)
    assert trainer.next_batch().ids.shape == (8, 16)
    trainer.progress.tokens = round(0.7 * trainer.settings.tokens)
    batch = trainer.next_batch()
    # The stream of turns holds no id of 97 and above.
    assert [bool((row < 97).all()) for row in batch.ids] == [False] * 6 + [True] * 2
    trainer.progress.tokens = round(0.95 * trainer.settings.tokens)
    assert trainer.next_batch().ids.shape == (4, 32)


def test_turns_that_are_asked_for_must_be_there() -> None:
    model = LanguageModel(SHAPE)
    sources = {"code": Sampler(torch.arange(3000), seed=3)}
    with pytest.raises(ValueError, match=r"turns_share is 0\.2, but there is no source of turns"):
        Trainer(model, model.loss, settings_of(), sources, asdict(SHAPE), Workers())


def test_the_loss_falls() -> None:
    trainer = trainer_of(tokens=20 * STEP_TOKENS, turns_share=0.0)
    losses = [trainer.step() for _ in range(12)]
    assert losses[0] == pytest.approx(math.log(SHAPE.vocab_size), rel=0.1)
    assert losses[11] < losses[0] - 0.5


def test_passes_of_a_step_add_up_to_the_whole_batch() -> None:
    """Gradients over four passes are those over one."""
    one, four = trainer_of(pass_tokens=STEP_TOKENS), trainer_of(pass_tokens=STEP_TOKENS // 4)
    assert one.step() == pytest.approx(four.step(), rel=1e-5)
    for left, right in zip(one.model.parameters(), four.model.parameters(), strict=True):
        # Muon rounds to bfloat16 on the way, so that nothing closer can be asked.
        torch.testing.assert_close(left, right, atol=2e-3, rtol=0)


def stopping_after(n_steps: int, trainer: Trainer) -> Any:
    class Stop:
        @property
        def asked(self) -> bool:
            return trainer.progress.step >= n_steps

    return Stop()


def test_a_stopped_run_resumes_to_the_weights_of_an_unbroken_one(tmp_path: Path) -> None:
    held_out = [windows(torch.arange(200) % 300, 32, 2)[0]]
    results = {}
    for name, stops in (("unbroken", []), ("stopped", [2, 5])):
        out = tmp_path / name
        out.mkdir()
        for after in [*stops, N_STEPS + 1]:
            trainer = trainer_of()
            saved = out / "checkpoint.safetensors"
            if saved.exists():
                trainer.resume(saved)
            stop = stopping_after(after, trainer)
            finished = run(trainer, held_out, 500, out, save_every_s=1e9, stop=stop)
            assert finished is (after > N_STEPS)
        results[name] = trainer
    for left, right in zip(
        results["unbroken"].model.parameters(), results["stopped"].model.parameters(), strict=True
    ):
        assert torch.equal(left, right)
    for name in results:
        progress = read_note(tmp_path / name / "checkpoint.safetensors")["progress"]
        assert progress["tokens"] == N_STEPS * STEP_TOKENS
        assert progress["heldout_loss"] == results["unbroken"].progress.heldout_loss
        # Nats over the windows, per byte, in bits.
        nats = progress["heldout_loss"] * held_out[0].ids.numel()
        assert progress["heldout_bits_per_byte"] == pytest.approx(nats / 500 / math.log(2))


def test_a_pause_is_not_counted() -> None:
    trainer = trainer_of()
    ticks = iter([0.0, 1.0, 1.0, 2.0, 2.0, 5000.0])
    trainer.clock = lambda: next(ticks)
    for _ in range(3):
        trainer.step()
    assert trainer.progress.counted_s == 1.0 + 1.0 + MAX_STEP_S


def test_a_run_with_other_settings_remembers_its_earlier_legs(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    first = trainer_of(compile=False)
    first.step()
    first.save(path)
    same = trainer_of(compile=False)
    same.resume(path)
    assert same.progress.legs == []
    longer = trainer_of(compile=False, tokens=2 * first.settings.tokens)
    longer.resume(path)
    leg = {"tokens": first.progress.tokens, "settings": asdict(first.settings)}
    assert longer.progress.legs == [leg]
    longer.save(path)
    longer.resume(path)
    assert longer.progress.legs == [leg]


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of()
    trainer.save(tmp_path / "checkpoint.safetensors")
    trainer.shape = {**trainer.shape, "num_hidden_layers": 9}
    with pytest.raises(ValueError, match="give --out another folder or add --fresh"):
        trainer.resume(tmp_path / "checkpoint.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="was not written by"):
        trainer_of().resume(path)


def train_toy(folder: Path, out: str, n_workers: int) -> dict[str, Any]:
    """The weights after one step: by one worker in this process, by several in their own."""
    flags = ["--data", str(folder), "--out", str(folder / out), "--no-compile", "--no-bfloat16"]
    # One step: what follows passes through Muon's bfloat16, which makes small differences large.
    flags += ["--tokens", "1024", "--workers", str(n_workers)]
    if n_workers == 1:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            launch(toy_member.build, arguments_of("Train a toy.").parse_args(flags))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    else:
        command = [sys.executable, "-m", "tests.training.toy_member", *flags]
        subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    weights: dict[str, Any] = load_file(folder / out / "checkpoint.safetensors")
    return weights


def test_two_workers_learn_what_one_does(tmp_path: Path) -> None:
    write_data(tmp_path)
    alone, shared = (train_toy(tmp_path, f"run{n}", n) for n in (1, 2))
    progress = [
        read_note(tmp_path / f"run{n}" / "checkpoint.safetensors")["progress"] for n in (1, 2)
    ]
    assert [entry["tokens"] for entry in progress] == [1024, 1024]
    losses = [entry["heldout_loss"] for entry in progress]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert 0 < progress[1]["heldout_bits_per_byte"] < 8
    assert list((tmp_path / "streams").iterdir())
    # After one step the averages that optimizers keep are the gradient's own, times a constant.
    averages = [name for name in alone if ".exp_avg." in name or ".momentum." in name]
    assert {name.split(".")[1] for name in averages} == {"exp_avg", "momentum"}
    for name in averages:
        torch.testing.assert_close(shared[name], alone[name], atol=1e-6, rtol=1e-3)
