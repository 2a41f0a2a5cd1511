"""The draft's run: against the text first, then against the base's whole distribution."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from tests.training.toy_training import SHAPE

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training needs PyTorch")

from training.data.packing import Batch, Sampler  # noqa: E402
from training.draft import DISTILLED_FROM, DraftObjective, DraftTrainer  # noqa: E402
from training.loop.parallel import Workers  # noqa: E402
from training.loop.trainer import Settings  # noqa: E402
from training.models.model import LanguageModel  # noqa: E402

STEP_TOKENS, N_STEPS = 128, 20


def batch(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(SHAPE.vocab_size, (2, 17), generator=generator)
    return Batch(ids[:, :-1], ids[:, 1:])


def objective() -> DraftObjective:
    torch.manual_seed(5)
    draft = LanguageModel(replace(SHAPE, num_hidden_layers=1))
    return DraftObjective(draft, LanguageModel(SHAPE))


def trainer() -> DraftTrainer:
    of = objective()
    settings = Settings(
        tokens=N_STEPS * STEP_TOKENS,
        step_tokens=STEP_TOKENS,
        pass_tokens=64,
        length=16,
        long_length=16,
        turns_share=0.0,
        bfloat16=False,
        compile=False,
    )
    code = Sampler(torch.arange(3000, dtype=torch.int32) * 7 % 311, seed=3)
    shape = asdict(of.draft.config)
    return DraftTrainer(of, of.draft, of, settings, {"code": code}, shape, Workers())


def test_distilling_is_the_cross_entropy_against_the_bases_distribution() -> None:
    of, (ids, targets) = objective(), batch(1)
    torch.testing.assert_close(of(ids, targets), of.draft.loss(ids, targets))
    of.distilling = True
    with torch.no_grad():
        wanted = of.base(ids).double().softmax(-1)
        logs = of.draft(ids).double().log_softmax(-1)
    expected = -(wanted * logs).sum(-1).mean()
    torch.testing.assert_close(of(ids, targets).double(), expected)
    # What the text says plays no part in it.
    torch.testing.assert_close(of(ids, targets), of(ids, batch(2).targets))


def test_only_the_draft_learns() -> None:
    of = objective()
    of.distilling = True
    before = {name: p.clone() for name, p in of.base.named_parameters()}
    torch.autograd.backward(of(*batch(1)))
    assert all(p.grad is None for p in of.base.parameters())
    assert all(p.grad is not None for p in of.draft.parameters())
    assert all(torch.equal(before[name], p) for name, p in of.base.named_parameters())


def test_the_base_teaches_in_the_last_part_of_the_budget() -> None:
    run = trainer()
    seen = []
    for _ in range(N_STEPS):
        share = run.share
        run.step()
        seen.append((share >= DISTILLED_FROM, run.draft_objective.distilling))
    assert all(expected == found for expected, found in seen)
    assert [found for _, found in seen].count(True) == 3


def test_held_out_text_is_always_measured_against_the_text() -> None:
    run, held_out = trainer(), batch(3)
    run.draft_objective.distilling = True
    run.evaluate([held_out], n_bytes=40)
    with torch.no_grad():
        expected = float(run.draft_objective.draft.loss(*held_out))
    assert run.progress.heldout_loss == pytest.approx(expected, rel=1e-5)


def test_a_distilled_draft_comes_nearer_to_the_base() -> None:
    of = objective()
    of.distilling = True
    ids, targets = batch(4)
    optimizer = torch.optim.Adam(of.draft.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = of(ids, targets)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    with torch.no_grad():
        entropy = -(of.base(ids).softmax(-1) * of.base(ids).log_softmax(-1)).sum(-1).mean()
    assert losses[-1] < losses[0]
    assert losses[-1] >= float(entropy) - 1e-4
