"""A real trained model, converted by somebody else, continues prompts exactly as recorded.

Its file is odd: no rope base (10000 is meant), a feed-forward width of 172, heads of 8 values,
special ids of 4294967295.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.models import load_model
from headrace.ops.interface import Ops
from headrace.weights.open import open_checkpoint
from tests.models.cases import Session, greedy


@pytest.mark.parametrize(
    ("backend", "index"), [*(("cpu", index) for index in range(5)), ("reference", 0)]
)
def test_greedy_continuation_is_the_recorded_one(
    backend: str, index: int, kernels: Ops, reference: Ops, shared_assets: Path
) -> None:
    ops = kernels if backend == "cpu" else reference
    folder = shared_assets / "models" / "stories260K"
    record = json.loads((folder / "reference-greedy.json").read_text())["stories260K"][index]
    model = load_model(open_checkpoint(folder / "stories260K.gguf"), ops)
    assert (model.attention.head_dim, model.config.intermediate_size) == (8, 172)
    assert (model.config.rope.theta, model.weight_codec) == (10000.0, "F32")
    ids = greedy(Session(model, ops), record["prompt_ids"], len(record["ids"]))
    assert ids == record["ids"]
