"""Acceptance of drafts: one reading of a continuation says what real chains of proposals do."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="measuring models needs PyTorch")

from tests.training.toy_models import (  # noqa: E402
    VOCABULARY,
    Counting,
    random_model,
    write_checkpoint,
    write_held_out,
)
from training.measure import acceptance  # noqa: E402
from training.measure.predictor import ModulePredictor, Predictor  # noqa: E402


class LogitsAlone:
    """A predictor that keeps no keys and values."""

    def __init__(self, inner: Predictor) -> None:
        self.logits = inner.logits


def chains(
    draft: Predictor, base: Predictor, prefix: list[int], n_tokens: int, n_drafted: int
) -> list[int]:
    """How many proposals each pass of speculative decoding takes, done as it is in earnest.

    The draft proposes `n_drafted` tokens one by one, then the base gives its verdict.
    """

    def guess(model: Predictor, ids: list[int]) -> int:
        return int(model.logits(torch.tensor([ids]))[0, -1].argmax())

    ids, accepted = list(prefix), []
    while len(ids) - len(prefix) + n_drafted <= n_tokens:
        proposals: list[int] = []
        for _ in range(n_drafted):
            proposals.append(guess(draft, ids + proposals))
        taken = 0
        while taken < n_drafted and guess(base, ids + proposals[:taken]) == proposals[taken]:
            taken += 1
        ids += proposals[:taken]
        ids.append(guess(base, ids))
        accepted.append(taken)
    return accepted


@pytest.mark.parametrize("keeps_keys_and_values", [True, False])
def test_acceptance_is_that_of_real_chains(keeps_keys_and_values: bool) -> None:
    base_model, draft_model = random_model(seed=1), random_model(seed=1)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in draft_model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.4 * parameter.std() * noise if parameter.dim() == 2 else 0.0)
    base: Any = ModulePredictor(base_model, bfloat16=False)
    draft: Any = ModulePredictor(draft_model, bfloat16=False)
    if not keeps_keys_and_values:
        base, draft = LogitsAlone(base), LogitsAlone(draft)
    prefixes = torch.randint(VOCABULARY, (6, 8), generator=generator)
    found = acceptance.acceptance(draft, base, prefixes, n_tokens=20, max_drafted=4)
    assert 0.0 < found.alpha < 1.0
    assert [one.n_drafted for one in found.drafting] == [1, 2, 3, 4]
    for one in found.drafting:
        expected = [
            taken
            for prefix in prefixes.tolist()
            for taken in chains(draft, base, prefix, 20, one.n_drafted)
        ]
        assert one.n_passes == len(expected)
        assert one.accepted == pytest.approx(sum(expected) / len(expected))


def test_alpha_counts_the_bases_tokens() -> None:
    prefixes = torch.tensor([[0, 1, 2], [10, 11, 12]])
    found = acceptance.acceptance(Counting([4]), Counting(), prefixes, 4, 2)
    # Behind 2 come 3 4 5 6, of which the draft misses 5; behind 12 it misses nothing.
    assert found.alpha == pytest.approx(7 / 8)
    assert found.alpha_error == pytest.approx((0.25 / math.sqrt(2)) / math.sqrt(2))
    assert [d.n_passes for d in found.drafting] == [3 + 2, 1 + 1]
    assert [d.accepted for d in found.drafting] == pytest.approx([(2 + 2) / 5, (2 + 2) / 2])
    same = acceptance.acceptance(Counting(), Counting(), prefixes, 4, 2)
    assert same.alpha == 1.0


def test_drafting_stops_where_a_pass_no_longer_fits() -> None:
    line = [True, True, False, True, False, False, True]
    # Passes begin at 0 (two taken), 3 (one), 5 (none); at 6 two proposals would go past the end.
    assert acceptance.drafted([acceptance.in_a_row(line)], 2) == acceptance.Drafting(2, 1.0, 3)


def test_prefixes_are_spread_over_all_places() -> None:
    documents = [[0, 1, 2, 3], [7], [0, 10, 11, 12, 13, 14]]
    every = [[0, 1, 2, 3], [0, 10, 11, 12], [10, 11, 12, 13], [11, 12, 13, 14]]
    assert acceptance.draw_prefixes(documents, 4, 4).tolist() == every
    assert acceptance.draw_prefixes(documents, 2, 4).tolist() == every[1::2]
    twice = [prefix for prefix in every for _ in range(2)]
    assert acceptance.draw_prefixes(documents, 8, 4).tolist() == twice
    with pytest.raises(ValueError, match="no document is as long"):
        acceptance.draw_prefixes(documents, 2, 7)


def test_the_report_has_the_documented_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_held_out(tmp_path)
    path, out = tmp_path / "checkpoint.safetensors", tmp_path / "out.json"
    write_checkpoint(path, seed=1)
    monkeypatch.setattr(acceptance, "PREFIX_TOKENS", 8)
    options = ["--data", str(tmp_path), "--json", str(out), "--prefixes", "3"]
    monkeypatch.setattr(sys, "argv", ["acceptance", str(path), str(path), *options])
    acceptance.main()
    report = json.loads(out.read_text())
    assert set(report) == {"base", "draft", "precision", "cpu_s", "figures"}
    found = report["figures"]
    assert set(found) == {field.name for field in fields(acceptance.Acceptance)}
    assert (found["n_prefixes"], found["prefix_tokens"], found["continued_tokens"]) == (3, 8, 64)
    assert found["alpha"] > 0.9
    assert [one["n_drafted"] for one in found["drafting"]] == list(range(1, 9))
    assert "3 prefixes" in capsys.readouterr().out
