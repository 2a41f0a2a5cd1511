"""Train a head with which headrace-base guesses its own next tokens: headrace-head, in EAGLE-3's
form, or headrace-mtp, a layer for multi-token prediction.

The base is frozen. The loss is the cross-entropy against its distribution over the tokens that the
head knows, at the places where the likeliest is one of them, at DEPTHS places in a row, each
further one weighing DECAY of the last: a head is judged by how often it agrees with the base, and
a later guess counts only where those before it were right.

Run it as `python -m training.head mtp --base build/train/base --out build/train/mtp`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from training.data.answers_only import split
from training.data.packing import Sampler
from training.loop.checkpoint import load_weights
from training.loop.launch import HeldOut, arguments_of, launch, open_sources
from training.loop.parallel import Workers
from training.loop.trainer import Settings, Trainer
from training.models.config import BASE, CHECKPOINT_NAME, NOTE_KEY, ModelConfig, read_note
from training.models.eight_bits import QUANTIZATION, in_eight_bits
from training.models.head_config import HEADS, HeadConfig
from training.models.head_model import Head, features_of
from training.models.heads import make_head, read_head
from training.models.model import LanguageModel

TOKENS = 6_000_000
DEPTHS = 3
DECAY = 0.8
SEEDS = {"head": 2, "mtp": 5}
"""Beyond the base's: each member reads in an order of its own."""
COUNTED_TOKENS = 4_000_000
"""Of each source, from which the commonest tokens are counted."""


class HeadObjective:
    """The head's loss against `base`, in nats a place."""

    def __init__(self, head: Head, base: LanguageModel, token_ids: list[int]) -> None:
        self.head, self.base = head, base.eval().requires_grad_(False)
        self.token_ids = torch.tensor(token_ids)
        self.known = torch.zeros(base.config.vocab_size, dtype=torch.bool)
        self.known[self.token_ids] = True

    def __call__(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean over depths of the cross-entropy over [B, T] positions. Targets below 0 mark what
        is only read."""
        embedding = self.base.model.embed_tokens.weight
        with torch.no_grad():
            features, hidden = features_of(self.base, ids, self.head.config.feature_layers)
            # Entry i is of the features of i and the token i + 1, and guesses i + 2, which the
            # base says at i + 1.
            said = F.linear(hidden[:, 1:-1], embedding)
            counted = self.known[said.argmax(dim=-1)] & (targets[:, 1:-1] >= 0)
            teacher = said[..., self.token_ids].float().softmax(dim=-1)
        embedded = F.embedding(ids[:, 1:-1], embedding)
        total = torch.zeros(())
        weight = 1.0
        weights = 0.0
        for depth, logits in enumerate(self.head(embedded, features[:, :-2], DEPTHS)):
            # The first `depth` entries have no features so far back.
            at = counted[:, depth:]
            losses = F.cross_entropy(
                logits[:, depth:][at].float(), teacher[:, depth:][at], reduction="sum"
            )
            total = total + weight * losses / at.numel()
            weights += weight
            weight *= DECAY
        return total / weights


def export_head(checkpoint: Path, out: Path, *, eight_bits: bool = True) -> int:
    """Write the folder of a head from its run's checkpoint, or from such a folder's file; return
    the bytes of its weights. eight_bits: store matrices so, and the rest in bfloat16."""
    note = read_note(checkpoint)["model"]
    token_ids = torch.tensor(note["token_ids"])
    config, base = HeadConfig.of_note(note["head"]), ModelConfig(**note["base"])
    weights = read_head(checkpoint)
    stated = config.to_hugging_face(base)
    if eight_bits:
        weights = in_eight_bits(weights, torch.bfloat16)
        stated |= {"torch_dtype": "bfloat16", "quantization_config": QUANTIZATION}
    known = torch.zeros(base.vocab_size, dtype=torch.bool)
    known[token_ids] = True
    weights |= {"d2t": token_ids - torch.arange(len(token_ids)), "t2d": known}
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(stated, indent=2) + "\n")
    path = out / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt", NOTE_KEY: json.dumps(read_note(checkpoint))})
    return path.stat().st_size


def commonest(sources: Mapping[str, Sampler], count: int) -> list[int]:
    """The ids that are most of the sources, each source weighing the same, in ascending order."""
    shares = torch.zeros(BASE.vocab_size, dtype=torch.float64)
    for source in sources.values():
        ids, _ = split(source.stream[:COUNTED_TOKENS].long())
        counts = torch.bincount(ids, minlength=BASE.vocab_size).double()
        shares += counts / counts.sum()
    return sorted(shares.topk(count).indices.tolist())


def build(arguments: argparse.Namespace, workers: Workers) -> tuple[Trainer, HeldOut]:
    settings = Settings(
        tokens=arguments.tokens or TOKENS,
        step_tokens=4096,  # many small steps: the base has done most of the work already
        long_from=2.0,  # a head reads a few hundred tokens
        turns_from=0.0,
        turns_share=0.25,
        adamw_learning_rate=0.001,  # its output begins as the base's, and is to stay near it
        warm_up=0.04,
        bfloat16=arguments.bfloat16,
        compile=arguments.compile,
        device=arguments.device,
        seed=Settings(tokens=0).seed + SEEDS[arguments.head],
    )
    _, sources, held_out = open_sources(arguments.data, settings)
    torch.manual_seed(settings.seed)
    base = LanguageModel(BASE)
    load_weights(arguments.base / CHECKPOINT_NAME, base)
    base.to(settings.device)
    config = HEADS[arguments.head]
    token_ids = commonest(sources, config.vocab_size)
    head = make_head(config, base, token_ids)
    objective = HeadObjective(head, base, token_ids)
    stated = {**asdict(config), "feature_layers": list(config.feature_layers)}
    shape = {"head": stated, "base": asdict(BASE), "token_ids": token_ids}
    return Trainer(head, objective, settings, sources, shape, workers), held_out


def main() -> None:
    parser = arguments_of("Train a head of headrace-base.")
    parser.add_argument("head", choices=HEADS)
    parser.add_argument("--base", type=Path, required=True, help="folder of the base's run")
    launch(build, parser.parse_args())


if __name__ == "__main__":
    main()
