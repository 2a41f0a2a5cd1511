"""A member of the family that trains in seconds: `-m tests.training.toy_member --out ...`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import torch

from tests.training.toy_training import SHAPE
from training.loop.launch import HeldOut, arguments_of, launch, open_sources
from training.loop.parallel import Workers
from training.loop.trainer import Settings, Trainer
from training.models.model import LanguageModel

STEP_TOKENS = 1024


def build(arguments: argparse.Namespace, workers: Workers) -> tuple[Trainer, HeldOut]:
    settings = Settings(
        tokens=arguments.tokens,
        step_tokens=STEP_TOKENS,
        length=64,
        long_length=128,
        turns_share=0.0,
        bfloat16=arguments.bfloat16,
        compile=arguments.compile,
    )
    _, sources, held_out = open_sources(arguments.data, settings)
    torch.manual_seed(settings.seed)
    model = LanguageModel(SHAPE)
    return Trainer(model, model.loss, settings, sources, asdict(SHAPE), workers), held_out


if __name__ == "__main__":
    launch(build, arguments_of("Train a toy.").parse_args())
