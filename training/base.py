"""Train headrace-base from nothing: next-token prediction on code, then on code and turns.

Run it as `python -m training.base --out build/train/base`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

import torch

from training.loop.launch import HeldOut, arguments_of, launch, open_sources
from training.loop.parallel import Workers
from training.loop.trainer import Settings, Trainer
from training.models.config import BASE
from training.models.model import LanguageModel

TOKENS = 33_000_000
# More than the others: what people ask of the model is nearly always in turns.
TURNS_SHARE = 0.3


def build(arguments: argparse.Namespace, workers: Workers) -> tuple[Trainer, HeldOut]:
    settings = Settings(
        tokens=arguments.tokens or TOKENS,
        turns_share=TURNS_SHARE,
        bfloat16=arguments.bfloat16,
        compile=arguments.compile,
        device=arguments.device,
    )
    _, sources, held_out = open_sources(arguments.data, settings)
    torch.manual_seed(settings.seed)
    model = LanguageModel(BASE)
    return Trainer(model, model.loss, settings, sources, asdict(BASE), workers), held_out


def main() -> None:
    launch(build, arguments_of("Train headrace-base.").parse_args())


if __name__ == "__main__":
    main()
