"""Experts of every layout of folders stay in the mapped file: views of it, and the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.memory.expert_memory import plan_weights
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.pieces import SplitTensor, TurnedTensor
from headrace.weights.tensors.tensor import Tensor
from tests.engine.mock import real_ops
from tests.models.cases import Session, prompt
from tests.models.test_expert_families import WITH_EXPERTS
from tests.tiny import write_tiny_hf

TOKENS = 4


def is_view(tensor: Tensor) -> bool:
    """Whether it lies where the file has it: in one piece or in several."""
    if isinstance(tensor, TurnedTensor):
        return not tensor.values.flags.owndata
    if isinstance(tensor, SplitTensor):
        return not tensor.pairs.flags.owndata and not tensor.exponents.flags.owndata
    return not tensor.data.flags.owndata


@pytest.mark.parametrize("codec", ["F32", "BF16"])
@pytest.mark.parametrize("family", WITH_EXPERTS)
def test_experts_of_folders_stay_mapped(family: str, codec: str, tmp_path: Path) -> None:
    """One expert's matrices packed at a time, or a few."""
    real_ops("cpu")
    checkpoint = open_checkpoint(write_tiny_hf(tmp_path, family, codec))
    experts = [tensor for name, tensor in checkpoint.tensors.items() if ".experts." in name]
    assert experts and all(is_view(tensor) for tensor in experts)
    plain = make_ops("cpu", threads=1)
    ids = prompt(0)[:TOKENS]
    expected = Session(load_model(checkpoint, plain), plain).feed(ids)
    whole = plan_weights(checkpoint, EngineConfig(model="-"), 1 << 40)
    ops = make_ops("cpu", threads=1, expert_cache_bytes=whole.expert_bytes // 2)
    session = Session(load_model(checkpoint, ops), ops)
    assert np.array_equal(session.feed(ids), expected)
    stats = ops.expert_cache_stats()
    assert stats is not None and stats.misses > 0 and stats.read_bytes > 0
    assert 0 < stats.held_bytes <= whole.expert_bytes // 2
