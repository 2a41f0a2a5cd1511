"""LoRA: a frozen model plus, beside each linear map, a product of two thin matrices.

A layer W becomes W x + (alpha / r) B (A x), with A [r, in] and B [out, r] (E. Hu and others, 2021).
B starts at zero, so that training starts at the model itself. Only A and B are trained and kept.
Tensor names are PEFT's without its prefix, as the module tree is: `....q_proj.lora_A.weight`.
Also the folder layout of the `peft` library, written and read back, and folding an adapter into
its base.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

# All of a layer's maps: with the same number of weights, a low rank everywhere learns more than a
# higher one in attention alone (J. Schulman, "LoRA Without Regret", 2025).
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PEFT_PREFIX = "base_model.model."
CONFIG_NAME, WEIGHTS_NAME = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class LoraConfig:
    """rank: r, 8 for an adapter of 0.6 MB in BF16 on the base. The product counts alpha / r."""

    rank: int = 8
    alpha: int = 16
    targets: tuple[str, ...] = TARGETS

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class LoraLinear(nn.Linear):
    """`base` with a trained low-rank part; its weight is shared, frozen, and keeps its name."""

    def __init__(self, base: nn.Linear, config: LoraConfig) -> None:
        super().__init__(base.in_features, base.out_features, bias=False)
        self.weight = base.weight
        # nn.Linear's own start is Kaiming's uniform one, which PEFT uses for A too.
        self.lora_A = nn.Linear(base.in_features, config.rank, bias=False)
        self.lora_B = nn.Linear(config.rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.scale = config.scale

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) + self.lora_B(self.lora_A(x)) * self.scale


def add_lora(model: nn.Module, config: LoraConfig) -> None:
    """Freeze `model` and give every linear layer named in `config.targets` a low-rank part.

    Raises ValueError when a target names no layer.
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    found = set()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in config.targets and isinstance(child, nn.Linear):
                setattr(parent, name, LoraLinear(child, config))
                found.add(name)
    if missing := set(config.targets) - found:
        raise ValueError(f"targets names {sorted(missing)}, but the model has no such linear layer")


def lora_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The trained tensors by name."""
    return {
        name: parameter.detach()
        for name, parameter in model.named_parameters()
        if ".lora_A." in name or ".lora_B." in name
    }


def merged(
    weights: dict[str, Tensor], adapter: dict[str, Tensor], scale: float
) -> dict[str, Tensor]:
    """`weights` with scale * B A added to each one that `adapter` changes, in float32.

    Names are the model's, without a prefix. Raises KeyError when the adapter changes a tensor that
    is not in `weights`, ValueError when their shapes do not fit.
    """
    result = dict(weights)
    for name, a in adapter.items():
        if not name.endswith(".lora_A.weight"):
            continue
        stem = name.removesuffix(".lora_A.weight")
        target, b = f"{stem}.weight", adapter[f"{stem}.lora_B.weight"]
        if weights[target].shape != (b.shape[0], a.shape[1]):
            raise ValueError(
                f"{target} is {list(weights[target].shape)}, the adapter's product "
                f"{[b.shape[0], a.shape[1]]}: it was made for another base"
            )
        result[target] = weights[target].float() + scale * (b.float() @ a.float())
    return result


def save_adapter(
    folder: Path, tensors: dict[str, Tensor], config: LoraConfig, base_name: str
) -> int:
    """Write `tensors` as a PEFT folder in BF16; return the bytes of the weights.

    BF16 halves the file: its rounding (2^-9 of a weight that is itself a small correction) is
    below what quantizing the base changes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = {f"{PEFT_PREFIX}{name}": t.bfloat16().contiguous() for name, t in tensors.items()}
    save_file(stored, folder / WEIGHTS_NAME, metadata={"format": "pt"})
    description = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "target_modules": sorted(config.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
        "modules_to_save": None,
        "use_dora": False,
        "use_rslora": False,
    }
    (folder / CONFIG_NAME).write_text(json.dumps(description, indent=2) + "\n")
    return (folder / WEIGHTS_NAME).stat().st_size


def load_adapter(folder: Path) -> tuple[dict[str, Tensor], LoraConfig]:
    """The tensors of a PEFT folder under the model's names, in their stored type, and its config.

    Raises ValueError when the adapter is of a kind that `merged` would get wrong.
    """
    description = json.loads((folder / CONFIG_NAME).read_text())
    plain = {"peft_type": "LORA", "bias": "none", "use_dora": False, "use_rslora": False}
    for key, value in plain.items():
        if description.get(key, value) != value:
            raise ValueError(
                f"{CONFIG_NAME} of {folder.name} has {key} {description[key]!r}; "
                f"only {value!r} is supported"
            )
    config = LoraConfig(
        description["r"], description["lora_alpha"], tuple(description["target_modules"])
    )
    stored = load_file(folder / WEIGHTS_NAME)
    return {name.removeprefix(PEFT_PREFIX): tensor for name, tensor in stored.items()}, config


def merge(adapter: Path, hugging_face: Path, out: Path) -> None:
    """Write the Hugging Face folder `hugging_face` to `out` with a PEFT folder folded in.

    Everything but the changed matrices is copied as it is. `hugging_face` holds its weights in one
    file, model.safetensors. Raises as `load_adapter` and `merged` do.
    """
    tensors, config = load_adapter(adapter)
    weights = merged(load_file(hugging_face / "model.safetensors"), tensors, config.scale)
    out.mkdir(parents=True, exist_ok=True)
    for file in _other_files(hugging_face):
        shutil.copyfile(file, out / file.name)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


def _other_files(folder: Path) -> Sequence[Path]:
    return sorted(
        file for file in folder.iterdir() if file.is_file() and file.suffix != ".safetensors"
    )
