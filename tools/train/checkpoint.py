"""Checkpoints of a training run as one safetensors file: no pickle, written atomically.

Tensors are `model.…` under Hugging Face names, and `adamw.exp_avg.…` and `adamw.exp_avg_sq.…`
per parameter; everything that is not a tensor is one JSON object in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from .config import NOTE_KEY, read_note
from .model import LanguageModel

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Progress:
    """Where a run stands. `counted_s` is time spent in steps, without pauses."""

    step: int = 0
    tokens: int = 0
    counted_s: float = 0.0
    epoch: int = 0
    position: int = 0
    heldout_loss: float = float("nan")
    heldout_bits_per_byte: float = float("nan")


def save(
    path: Path,
    model: LanguageModel,
    optimizer: torch.optim.AdamW,
    progress: Progress,
    settings: Mapping[str, object],
) -> None:
    """Write a checkpoint to `path`, replacing an older one only when complete."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        tensors[name] = parameter.detach()
        for moment in MOMENTS:
            if moment in optimizer.state[parameter]:
                tensors[f"adamw.{moment}.{name}"] = optimizer.state[parameter][moment]
    note = {
        "progress": asdict(progress),
        "settings": dict(settings),
        "model": asdict(model.config),
    }
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={NOTE_KEY: json.dumps(note)})
    partial.replace(path)


def load(path: Path, model: LanguageModel, optimizer: torch.optim.AdamW) -> Progress:
    """Put a checkpoint into `model` and `optimizer`; return where the run stood.

    Raises KeyError (from safetensors) when a tensor is missing, and ValueError when the
    checkpoint's shape is not the model's.
    """
    note = read_note(path)
    if note["model"] != asdict(model.config):
        raise ValueError(
            f"checkpoint {path.name} has model shape {note['model']}, this run has "
            f"{asdict(model.config)}: give --out another folder or drop --resume"
        )
    progress = Progress(**note["progress"])
    with safe_open(path, framework="pt") as file, torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(file.get_tensor(name))
            if progress.step == 0:
                continue
            state = optimizer.state[parameter]
            state["step"] = torch.tensor(float(progress.step))
            for moment in MOMENTS:
                state[moment] = file.get_tensor(f"adamw.{moment}.{name}").clone()
    return progress
