"""Train headrace-moe, the mixture of experts that begins as a copy of headrace-base.

The copy gives the base's logits (see `upcycle`), and goes on from there for a twentieth of the
base's budget. Whether experts help is told by two comparisons: with the base itself, and with the
base trained on for the same tokens, batches and settings, which `--control` does.

    python -m training.moe --base build/train/base --out build/train/moe
    python -m training.moe --base build/train/base --out build/train/moe-control --control
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training.data.packing import Sampler
from training.loop.checkpoint import load_weights
from training.loop.launch import HeldOut, arguments_of, launch, open_sources
from training.loop.parallel import Workers
from training.loop.trainer import Settings, Trainer
from training.models.config import BASE, CHECKPOINT_NAME
from training.models.model import LanguageModel
from training.models.moe_config import MOE, shape_of
from training.models.moe_model import MoELanguageModel, upcycle

TOKENS = 2_000_000
# How far a bias may go in one step, at the start and at the end. Scores lie in [0, 1] and their
# spread is about 0.2: a hundred steps at most, so slower ones would never catch up.
BALANCE_FIRST, BALANCE_LAST = 0.004, 0.001
# Sequences from which the biases are set before the first step.
SETTLE_SEQUENCES, SETTLE_LENGTH = 16, 512


def settings_of(arguments: argparse.Namespace) -> Settings:
    """A twentieth of the base's peak rates, which is where the base stood a tenth before its end.

    Higher ones undo more of what the base learnt last than so short a run learns again: with a
    quarter the held-out loss rose by 0.06 nats. Conversation and whole contexts are there from the
    start, because the base ended with them: with short sequences far positions got worse.
    """
    peak = Settings(tokens=0)
    return Settings(
        tokens=arguments.tokens or TOKENS,
        turns_from=0.0,
        long_from=0.0,
        warm_up=0.05,
        muon_learning_rate=peak.muon_learning_rate / 20,
        adamw_learning_rate=peak.adamw_learning_rate / 20,
        bfloat16=arguments.bfloat16,
        compile=arguments.compile,
        device=arguments.device,
    )


class MoETrainer(Trainer):
    """A Trainer that balances the experts after each step; `largest_load` is of the last one."""

    model: MoELanguageModel
    largest_load = 1.0

    def step(self) -> float:
        share = min(self.share, 1.0)
        loss = super().step()
        rate = BALANCE_FIRST + (BALANCE_LAST - BALANCE_FIRST) * share
        self.largest_load = self.model.balance(rate, self.workers)
        return loss


def build(arguments: argparse.Namespace, workers: Workers) -> tuple[Trainer, HeldOut]:
    settings = settings_of(arguments)
    _, sources, held_out = open_sources(arguments.data, settings)
    # The base's streams and held-out text, but drawn in windows that are cut elsewhere.
    seed = settings.seed + 1
    sources = {name: Sampler(source.stream, seed) for name, source in sources.items()}
    torch.manual_seed(settings.seed)
    base = LanguageModel(BASE)
    load_weights(arguments.base / CHECKPOINT_NAME, base)
    if arguments.control:
        shape = shape_of(BASE)
        return Trainer(base, base.loss, settings, sources, shape, workers), held_out
    model = MoELanguageModel(MOE)
    upcycle(base, model)
    batch = Sampler(sources["code"].stream, seed + 1).next_batch(SETTLE_SEQUENCES, SETTLE_LENGTH)
    model.settle(batch.ids[workers.rank :: workers.count], workers)
    shape = shape_of(MOE)
    return MoETrainer(model, model.loss, settings, sources, shape, workers), held_out


def main() -> None:
    parser = arguments_of("Train headrace-moe.")
    parser.add_argument("--base", type=Path, required=True, help="folder of the base's run")
    parser.add_argument(
        "--control", action="store_true", help="train the base itself on, to compare with"
    )
    launch(build, parser.parse_args())


if __name__ == "__main__":
    main()
