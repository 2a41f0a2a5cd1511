"""Logits and greedy tokens against transformers: live where it is installed, goldens elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace.models import FAMILIES, Model, load_model
from headrace.ops.interface import Ops
from tests.models.cases import (
    BROKEN_RULES,
    BROKEN_TENSORS,
    CASES,
    FIRST_OF_FAMILY,
    GREEDY_STEPS,
    PROMPT_TOKENS,
    Session,
    prompt,
    weights_digest,
)
from tests.models.make_goldens import COLUMN_STEP, GOLDENS
from tests.tiny import tiny_checkpoint
from tests.tiny_families import tiny_family_names
from tools import families_table
from tools.families_table import comparison

TOLERANCE = 1e-5
"""max|Δ| / max|ref| in float32: both sides add some hundreds of products per logit."""

GAP_OVER_ERROR = 100
"""Greedy tokens mean something only where the runner-up is much further off than the error."""

Golden = dict[str, npt.NDArray[np.generic]]
Ways = Callable[[Model, Ops, list[int], list[int]], dict[str, npt.NDArray[np.float32]]]


def golden(name: str) -> Golden:
    path = GOLDENS / f"{CASES[name].family}.npz"
    with np.load(path, allow_pickle=False) as arrays:
        return {
            key.split("/")[1]: arrays[key] for key in arrays.files if key.startswith(f"{name}/")
        }


def build(name: str, seed: int, ops: Ops) -> Model:
    case = CASES[name]
    return load_model(tiny_checkpoint(case.family, seed=seed, **case.shape), ops)


def all_ways(
    model: Model, ops: Ops, prompt_ids: list[int], tokens: list[int]
) -> dict[str, npt.NDArray[np.float32]]:
    """Logits from the first position on: those of two_ways, and the prompt token by token."""
    prompt_in_steps = Session(model, ops).feed_in_chunks(prompt_ids, 1)
    return two_ways(model, ops, prompt_ids, tokens) | {"prompt in steps": prompt_in_steps}


def two_ways(
    model: Model, ops: Ops, prompt_ids: list[int], tokens: list[int]
) -> dict[str, npt.NDArray[np.float32]]:
    """Logits of all positions: at once, and step by step behind a prompt in chunks.

    Step by step, what follows the prompt is the model's own greedy choice, which must be `tokens`.
    """
    session = Session(model, ops)
    steps = [session.feed_in_chunks(prompt_ids, 23)]
    chosen = [int(steps[-1][-1].argmax())]
    while len(chosen) < len(tokens):
        steps.append(session.feed(chosen[-1:]))
        chosen.append(int(steps[-1][-1].argmax()))
    assert chosen == tokens
    return at_once(model, ops, prompt_ids, tokens) | {"step by step": np.concatenate(steps)}


def at_once(
    model: Model, ops: Ops, prompt_ids: list[int], tokens: list[int]
) -> dict[str, npt.NDArray[np.float32]]:
    """Logits of all positions in one pass, of which `tokens` must be the greedy choice."""
    logits = Session(model, ops).feed(prompt_ids + tokens[:-1])
    assert logits[len(prompt_ids) - 1 :].argmax(axis=1).tolist() == tokens
    return {"at once": logits}


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*.npz")), ids=lambda path: path.stem)
def test_goldens_are_small_and_of_a_family(path: Path) -> None:
    assert path.stat().st_size < 80_000
    assert path.stem in tiny_family_names()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_is_compared_and_each_family_has_a_rule_broken(family: str) -> None:
    found = comparison(family)
    assert found.cases and found.compared == found.cases
    assert found.broken, f"tests/tiny_families/{family}.py lacks BROKEN_RULES or BROKEN_TENSORS"


def test_what_has_no_golden_does_not_appear_as_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(families_table, "GOLDENS", tmp_path)
    row = "| `qwen3` | nothing | 2 |  |  |  |"
    assert row in families_table.families_table().splitlines()
    # Of other weights than the case has, and of too few tokens.
    with np.load(GOLDENS / "qwen3.npz", allow_pickle=False) as arrays:
        kept = dict(arrays)
    kept["qwen3-tied/seed"] = kept["qwen3-tied/seed"] + 1
    kept["qwen3-untied/greedy"] = kept["qwen3-untied/greedy"][:-1]
    np.savez(tmp_path / "qwen3.npz", **kept)
    assert row in families_table.families_table().splitlines()
    assert comparison("no_such_family").compared == ()


def check_goldens(name: str, ops: Ops, run: Ways = all_ways) -> None:
    expected = golden(name)
    seed = int(expected["seed"])
    assert weights_digest(CASES[name], seed) == str(expected["digest"]), (
        "NumPy's generator draws other weights here; write the goldens again"
    )
    tokens = expected["greedy"].tolist()
    assert len(tokens) == GREEDY_STEPS
    worst = 0.0
    for way, logits in run(build(name, seed, ops), ops, prompt(seed), tokens).items():
        of_them = expected["logits"][: len(logits)]
        worst = max(worst, float(np.abs(logits[:, ::COLUMN_STEP] - of_them).max()))
        assert worst <= TOLERANCE * float(expected["scale"]), way
    assert float(expected["smallest_gap"]) > GAP_OVER_ERROR * worst


@pytest.mark.parametrize("name", CASES)
def test_parity_with_goldens(name: str, kernels: Ops) -> None:
    check_goldens(name, kernels)


@pytest.mark.matrix
@pytest.mark.parametrize("name", CASES)
def test_parity_of_the_reference_with_goldens(name: str, reference: Ops) -> None:
    """Every case at once, the first of each family in chunks and steps as well: the kernels take
    all ways in every case."""
    check_goldens(name, reference, two_ways if name in FIRST_OF_FAMILY else at_once)


@pytest.mark.torch
@pytest.mark.parametrize("name", FIRST_OF_FAMILY)
def test_parity_with_transformers(name: str, reference: Ops, kernels: Ops) -> None:
    """All columns, and what the goldens say, which are transformers' own in every case.

    A case of each family, as what is new here is the installed version. One pass over the prompt
    and the golden continuation: each of its tokens is the likeliest after those before it, so that
    it is the greedy one.
    """
    pytest.importorskip("torch", reason="parity with transformers needs torch")
    pytest.importorskip("transformers", reason="parity needs transformers")
    from tests.models.hf import logits_of_text

    kept = golden(name)
    seed, tokens = int(kept["seed"]), kept["greedy"].tolist()
    ids = prompt(seed) + tokens[:-1]
    expected = logits_of_text(CASES[name], seed, ids)
    scale = float(np.abs(expected).max())
    steps = expected[PROMPT_TOKENS - 1 :]
    assert steps.argmax(axis=1).tolist() == tokens
    second, best = np.sort(steps, axis=1)[:, -2:].T
    assert np.abs(expected[:, ::COLUMN_STEP] - kept["logits"]).max() <= TOLERANCE * scale
    for ops in (kernels, reference):
        logits = Session(build(name, seed, ops), ops).feed(ids)
        worst = float(np.abs(logits - expected).max())
        assert worst <= TOLERANCE * scale, ops
        assert float((best - second).min()) > GAP_OVER_ERROR * worst, ops


@pytest.mark.parametrize(("name", "change"), BROKEN_RULES)
def test_a_rule_is_not_lost_in_the_tolerance(
    name: str, change: dict[str, Any], kernels: Ops
) -> None:
    """With one rule broken the model is far from its golden, so the cases do test it."""
    expected, case = golden(name), CASES[name]
    seed = int(expected["seed"])
    model = load_model(tiny_checkpoint(case.family, seed=seed, **case.shape | change), kernels)
    ids = prompt(seed) + expected["greedy"].tolist()[:-1]
    logits = Session(model, kernels).feed(ids)[:, ::COLUMN_STEP]
    assert np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"])


@pytest.mark.parametrize(("name", "tensor"), BROKEN_TENSORS)
def test_a_tensor_is_not_lost_in_the_tolerance(name: str, tensor: str, kernels: Ops) -> None:
    """With some of its tensors set to zero, biases that only choose experts among them."""
    expected, case = golden(name), CASES[name]
    seed = int(expected["seed"])
    checkpoint = tiny_checkpoint(case.family, seed=seed, **case.shape)
    changed = {
        key: replace(value, data=np.zeros_like(value.data)) if key.endswith(tensor) else value
        for key, value in checkpoint.tensors.items()
    }
    model = load_model(replace(checkpoint, tensors=changed), kernels)
    ids = prompt(seed) + expected["greedy"].tolist()[:-1]
    logits = Session(model, kernels).feed(ids)[:, ::COLUMN_STEP]
    assert np.abs(logits - expected["logits"]).max() > 0.01 * float(expected["scale"])
