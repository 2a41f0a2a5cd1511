"""Train headrace-draft, which guesses what headrace-base is about to say.

Most of the budget is plain next-token prediction. The last part is distillation: the loss is the
cross-entropy against the base's whole distribution (G. Hinton and others, 2015), because a draft
is judged by how often it agrees with the base, not by how often it is right.

Run it as `python -m training.draft --base build/train/base --out build/train/draft`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from training.data.packing import Batch
from training.loop.checkpoint import load_weights
from training.loop.launch import HeldOut, arguments_of, launch, open_sources
from training.loop.parallel import Workers
from training.loop.trainer import Settings, Trainer
from training.models.config import BASE, CHECKPOINT_NAME, DRAFT
from training.models.model import LanguageModel

TOKENS = 40_500_000
# From this share of the budget on the base teaches; a token costs half as much again then.
DISTILLED_FROM = 0.85


class DraftObjective:
    """The draft's loss: against the text, or against `base` once `distilling` is set."""

    def __init__(self, draft: LanguageModel, base: LanguageModel) -> None:
        self.draft, self.base = draft, base.eval().requires_grad_(False)
        self.distilling = False

    def __call__(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats over [B, T] positions."""
        if not self.distilling:
            return self.draft.loss(ids, targets)
        with torch.no_grad():
            teacher = self.base(ids).flatten(0, 1).float().softmax(dim=-1)
        return F.cross_entropy(self.draft(ids).flatten(0, 1).float(), teacher)


class DraftTrainer(Trainer):
    """A Trainer that turns to distillation when its share of the budget is reached.

    Held-out loss is always against the text.
    """

    def __init__(self, objective: DraftObjective, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self.draft_objective = objective

    def step(self) -> float:
        self.draft_objective.distilling = self.share >= DISTILLED_FROM
        return super().step()

    def evaluate(self, batches: Sequence[Batch], n_bytes: int) -> None:
        self.draft_objective.distilling = False
        super().evaluate(batches, n_bytes)


def build(arguments: argparse.Namespace, workers: Workers) -> tuple[Trainer, HeldOut]:
    settings = Settings(
        tokens=arguments.tokens or TOKENS,
        adamw_learning_rate=0.006,
        bfloat16=arguments.bfloat16,
        compile=arguments.compile,
        device=arguments.device,
        seed=Settings(tokens=0).seed + 1,
    )
    _, sources, held_out = open_sources(arguments.data, settings)
    torch.manual_seed(settings.seed)
    model, base = LanguageModel(DRAFT), LanguageModel(BASE)
    load_weights(arguments.base / CHECKPOINT_NAME, base)
    base.to(settings.device)
    objective = DraftObjective(model, base)
    trainer = DraftTrainer(objective, model, objective, settings, sources, asdict(DRAFT), workers)
    return trainer, held_out


def main() -> None:
    parser = arguments_of("Train headrace-draft.")
    parser.add_argument("--base", type=Path, required=True, help="folder of the base's run")
    launch(build, parser.parse_args())


if __name__ == "__main__":
    main()
