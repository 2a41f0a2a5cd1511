"""Logits and greedy tokens against transformers: live where it is installed, goldens elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from headrace.models import Model, load_model
from headrace.ops.interface import Ops
from tests.models.cases import CASES, GREEDY_STEPS, Session, greedy, prompt, weights_digest
from tests.models.make_goldens import COLUMN_STEP, GOLDENS
from tests.tiny import tiny_checkpoint
from tests.tiny_families import tiny_family_names

if TYPE_CHECKING:
    from tests.models.hf import Reference

TOLERANCE = 1e-5
"""max|Δ| / max|ref| in float32: both sides add some hundreds of products per logit."""

GAP_OVER_ERROR = 100
"""Greedy tokens mean something only where the runner-up is much further off than the error."""

Golden = dict[str, npt.NDArray[np.generic]]


def golden(name: str) -> Golden:
    path = GOLDENS / f"{CASES[name].family}.npz"
    with np.load(path, allow_pickle=False) as arrays:
        return {
            key.split("/")[1]: arrays[key] for key in arrays.files if key.startswith(f"{name}/")
        }


def build(name: str, seed: int, ops: Ops) -> Model:
    case = CASES[name]
    return load_model(tiny_checkpoint(case.family, seed=seed, **case.shape), ops)


def all_ways(model: Model, ops: Ops, ids: list[int]) -> dict[str, npt.NDArray[np.float32]]:
    """Logits of all positions: at once, in chunks, step by step."""
    return {
        "at once": Session(model, ops).feed(ids),
        "in chunks": Session(model, ops).feed_in_chunks(ids, 23),
        "step by step": Session(model, ops).feed_in_chunks(ids, 1),
    }


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*.npz")), ids=lambda path: path.stem)
def test_goldens_are_small_and_of_a_family(path: Path) -> None:
    assert path.stat().st_size < 80_000
    assert path.stem in tiny_family_names()


@pytest.mark.parametrize("name", CASES)
def test_parity_with_goldens(name: str, ops: Ops) -> None:
    expected = golden(name)
    seed = int(expected["seed"])
    assert weights_digest(CASES[name], seed) == str(expected["digest"]), (
        "NumPy's generator draws other weights here; write the goldens again"
    )
    model = build(name, seed, ops)
    tokens = expected["greedy"].tolist()
    assert greedy(Session(model, ops), prompt(seed), GREEDY_STEPS) == tokens
    worst = 0.0
    for way, logits in all_ways(model, ops, prompt(seed) + tokens[:-1]).items():
        worst = max(worst, float(np.abs(logits[:, ::COLUMN_STEP] - expected["logits"]).max()))
        assert worst <= TOLERANCE * float(expected["scale"]), way
    assert float(expected["smallest_gap"]) > GAP_OVER_ERROR * worst


@cache
def of_transformers(name: str, seed: int) -> Reference:
    """For all backends."""
    from tests.models.hf import run_case

    return run_case(CASES[name], seed)


@pytest.mark.parametrize("name", CASES)
def test_parity_with_transformers(name: str, ops: Ops) -> None:
    """All columns, and what the goldens say, which the other ways are held against."""
    pytest.importorskip("torch", reason="parity with transformers needs torch")
    pytest.importorskip("transformers", reason="parity needs transformers")
    kept = golden(name)
    seed = int(kept["seed"])
    expected = of_transformers(name, seed)
    scale = float(np.abs(expected.logits).max())
    assert expected.greedy == kept["greedy"].tolist()
    columns = expected.logits[:, ::COLUMN_STEP]
    assert np.abs(columns - kept["logits"]).max() <= TOLERANCE * scale
    model = build(name, seed, ops)
    logits = Session(model, ops).feed(expected.prompt + expected.greedy[:-1])
    worst = float(np.abs(logits - expected.logits).max())
    assert worst <= TOLERANCE * scale
    assert expected.smallest_gap > GAP_OVER_ERROR * worst


@pytest.mark.parametrize("plain", ["llama-llama3", "llama-linear"])
def test_scaling_is_not_lost_in_the_tolerance(plain: str, reference: Ops) -> None:
    """Without its rope scaling the model is far from its golden, so the cases do test it."""
    expected = golden(plain)
    seed = int(expected["seed"])
    model = load_model(tiny_checkpoint("llama", seed=seed), reference)
    ids = prompt(seed) + expected["greedy"].tolist()[:-1]
    logits = Session(model, reference).feed(ids)[:, ::COLUMN_STEP]
    assert np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"])
