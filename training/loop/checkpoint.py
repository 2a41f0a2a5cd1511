"""Checkpoints of a training run as one safetensors file: no pickle, written atomically.

Tensors are `model.…` under Hugging Face names, and `optimizer.<state>.<parameter>` for whatever
an optimizer keeps; everything that is not a tensor is one JSON object in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from training.models.config import NOTE_KEY, read_note

OPTIMIZER_PREFIX = "optimizer."
# Settings that say where a run takes place and not what it does.
ELSEWHERE = frozenset({"device", "compile"})


@dataclass
class Progress:
    """Where a run stands.

    `counted_s` is time spent in steps, without pauses; `places` is (epoch, window) by source.
    `legs` are the earlier parts of a run that was taken up with other settings: each the `tokens`
    at which it ended, and its `settings`. `taken_up_tokens` says where the run went on from weights
    alone, rounded to Q8_0 (take_up.py).
    """

    step: int = 0
    tokens: int = 0
    counted_s: float = 0.0
    places: dict[str, list[int]] = field(default_factory=dict)
    heldout_loss: float = float("nan")
    heldout_bits_per_byte: float = float("nan")
    legs: list[dict[str, Any]] = field(default_factory=list)
    taken_up_tokens: list[int] = field(default_factory=list)


def save(
    path: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    progress: Progress,
    settings: Mapping[str, object],
    shape: Mapping[str, object],
) -> None:
    """Write a checkpoint to `path`, replacing an older one only when complete."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        tensors[name] = parameter.detach()
        for optimizer in optimizers:
            for key, value in optimizer.state.get(parameter, {}).items():
                tensors[f"{OPTIMIZER_PREFIX}{key}.{name}"] = value
    note = {"progress": asdict(progress), "settings": dict(settings), "model": dict(shape)}
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={NOTE_KEY: json.dumps(note)})
    partial.replace(path)


def load_weights(path: Path, model: nn.Module) -> None:
    """Put a checkpoint's weights into `model`.

    Raises KeyError (from safetensors) when a tensor is missing.
    """
    with safe_open(path, framework="pt") as file, torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(file.get_tensor(name))


def load(
    path: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    settings: Mapping[str, object],
    shape: Mapping[str, object],
) -> Progress:
    """Put a checkpoint into `model` and `optimizers`; return where the run stood.

    Where it was made with other settings than `settings`, that is kept as a leg of the run.
    Raises KeyError (from safetensors) when a tensor is missing, and ValueError when the
    checkpoint's shape is not `shape`.
    """
    note = read_note(path)
    if note["model"] != dict(shape):
        raise ValueError(
            f"checkpoint {path.name} has model shape {note['model']}, this run has "
            f"{dict(shape)}: give --out another folder or add --fresh"
        )
    load_weights(path, model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    with safe_open(path, framework="pt") as file:
        stored = set(file.keys())
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    suffix = f".{names[id(parameter)]}"
                    for key in ("step", "exp_avg", "exp_avg_sq", "momentum"):
                        if (stored_name := f"{OPTIMIZER_PREFIX}{key}{suffix}") in stored:
                            value = file.get_tensor(stored_name)
                            optimizer.state[parameter][key] = value.to(parameter.device, copy=True)
    progress = Progress(**note["progress"])
    if any(note["settings"].get(name) != settings[name] for name in settings.keys() - ELSEWHERE):
        progress.legs.append({"tokens": progress.tokens, "settings": note["settings"]})
    return progress
