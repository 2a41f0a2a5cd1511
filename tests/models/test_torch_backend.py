"""Every family on the torch backend, on a processor: the logits and the tokens of the goldens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.models import load_model
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.ops.placement import ALL_LAYERS, with_experts
from headrace.weights.open import open_checkpoint
from tests.engine.mock import real_ops
from tests.models.cases import CASES, Session, greedy, prompt
from tests.models.test_expert_families import WITH_EXPERTS
from tests.models.test_parity import (
    FIRST_OF_FAMILY,
    build,
    check_goldens,
    golden,
    two_ways,
)

pytest.importorskip("torch", reason="the torch backend needs PyTorch")

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def ops() -> Ops:
    from tests.ops.torch.on_host import DEVICE

    return make_ops("torch", device=DEVICE, threads=1)


@pytest.mark.smoke
@pytest.mark.parametrize("name", FIRST_OF_FAMILY)
def test_a_case_of_each_family_agrees_with_transformers(name: str, ops: Ops) -> None:
    """At once and in chunks, with the bits of each other."""
    check_goldens(name, ops, two_ways)
    seed = int(golden(name)["seed"])
    model, ids = build(name, seed, ops), prompt(seed)
    whole = Session(model, ops).feed(ids)
    assert (Session(model, ops).feed_in_chunks(ids, 9) == whole).all()


@pytest.mark.matrix
@pytest.mark.parametrize("name", [name for name in CASES if name not in FIRST_OF_FAMILY])
def test_every_other_case_agrees_with_transformers(name: str, ops: Ops) -> None:
    check_goldens(name, ops, two_ways)


@pytest.mark.parametrize("name", [n for n in FIRST_OF_FAMILY if CASES[n].family in WITH_EXPERTS])
def test_with_experts_on_the_kernels_it_agrees_with_transformers_too(name: str, ops: Ops) -> None:
    """Within the same bounds: each backend's own errors are smaller than they."""
    placed = with_experts(ops, real_ops("cpu"), ALL_LAYERS)
    check_goldens(name, placed, two_ways)


@pytest.mark.parametrize("index", range(5))
def test_a_trained_model_continues_as_recorded(index: int, ops: Ops, shared_assets: Path) -> None:
    folder = shared_assets / "models" / "stories260K"
    record = json.loads((folder / "reference-greedy.json").read_text())["stories260K"][index]
    model = load_model(open_checkpoint(folder / "stories260K.gguf"), ops)
    ids = greedy(Session(model, ops), record["prompt_ids"], len(record["ids"]))
    assert ids == record["ids"]
