"""The classifier that is shipped."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from headrace.gateway.routing.complexity import classifier
from headrace.gateway.routing.complexity.classifier import LogisticClassifier, Weights, shipped

ROOT = Path(__file__).resolve().parents[4]
FILE = Path(classifier.__file__).with_name(classifier.WEIGHTS)


def test_it_is_as_right_on_unseen_requests_as_its_file_says() -> None:
    told = msgspec.json.decode(FILE.read_bytes(), type=Weights).held_out
    held_out = json.loads((ROOT / "tools/complexity/held_out.json").read_text())
    model = shipped()
    for kind, is_hard in (("simple", False), ("hard", True)):
        right = [(model.of_text(one) >= 0.5) is is_hard for one in held_out[kind]]
        assert sum(right) / len(right) == pytest.approx(told[f"{kind}_right"], abs=1e-4)
        assert told[f"{kind}_right"] >= 0.8


def test_no_held_out_request_is_one_of_the_templates() -> None:
    raw = json.loads((ROOT / "tools/complexity/templates.json").read_text())
    seen = {one.casefold().strip(".!?") for one in (*raw["simple"], *raw["hard"])}
    held_out = json.loads((ROOT / "tools/complexity/held_out.json").read_text())
    for one in (*held_out["simple"], *held_out["hard"]):
        assert one.casefold().strip(".!?") not in seen


@pytest.mark.parametrize("text", ["", "?", "\x00" * 50, "\ud800", "词" * 10_000, "a " * 100_000])
def test_any_text_has_a_probability(text: str) -> None:
    assert 0.0 <= shipped().of_text(text) <= 1.0


def test_it_is_small() -> None:
    assert FILE.stat().st_size < 300_000


def test_weights_of_other_features_are_refused() -> None:
    weights = msgspec.json.decode(FILE.read_bytes(), type=Weights)
    with pytest.raises(ValueError, match="train it again"):
        LogisticClassifier(msgspec.structs.replace(weights, counts=weights.counts[1:]))
