"""The heads by their kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from training.models.eagle_head import EagleHead
from training.models.eight_bits import from_eight_bits
from training.models.head_config import HeadConfig, HeadKind
from training.models.head_model import Head
from training.models.model import LanguageModel
from training.models.mtp_head import MtpHead

_KINDS: Mapping[HeadKind, type[Head]] = {"eagle3": EagleHead, "mtp": MtpHead}


def make_head(config: HeadConfig, base: LanguageModel, token_ids: Sequence[int]) -> Head:
    """A head of `base` that has learnt nothing yet. Raises ValueError for token_ids that are not as
    many as its vocabulary, in ascending order."""
    return _KINDS[config.kind](config, base, token_ids)


def read_head(path: Path) -> dict[str, Tensor]:
    """The weights of a head's checkpoint, or of the file of its folder, by their names in it."""
    with safe_open(path, framework="pt") as file:
        names = [name for name in file.keys() if name.startswith(_WEIGHTS)]  # noqa: SIM118
        return from_eight_bits({name: file.get_tensor(name) for name in names})


_WEIGHTS = ("model.", "lm_head.", "mtp.")
"""How names of weights begin; a checkpoint holds its optimizers too, a folder the ids it knows."""
