"""headrace-draft beside headrace-base and headrace-moe, headrace-head and headrace-mtp beside
headrace-base: the same answers, in fewer steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import LLM, SamplingParams
from headrace.embedded import embedded_model
from headrace.structured.grammar import Grammar
from tests.engine.mock import real_ops
from tests.models.shipped_moe import SHIPPED

MODELS = Path(__file__).resolve().parents[2] / "models"
DRAFT = MODELS / "headrace-draft"
HEADS = {"head": MODELS / "headrace-head", "mtp": MODELS / "headrace-mtp"}
BEGINNINGS = (
    "import os\nimport sys\n\n\nclass Reader:\n    def __init__(self, path):\n",
    "def fibonacci(n):\n",
    "from __future__ import annotations\n\nfrom dataclasses import dataclass\n\n\n@dataclass\n"
    "class ",
)

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(
        not DRAFT.exists(), reason="models/ is in the repository, in no sdist and no wheel"
    ),
]


@pytest.fixture(scope="module", params=["base", "moe", *HEADS])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[LLM, LLM]]:
    """Without drafts, and with those of the draft or a head."""
    guesser = HEADS.get(request.param, DRAFT)
    if not guesser.exists():
        pytest.skip(f"{guesser.name} is not in models/: its run has not been placed")
    real_ops("cpu")
    path = SHIPPED if request.param == "moe" else embedded_model()
    spec = json.dumps({"model": str(guesser), "num_speculative_tokens": 4, "adaptive": False})
    yield tuple(  # type: ignore[misc]
        LLM(str(path), num_gpu_blocks_override=512, speculative_config=value)
        for value in ("none", spec)
    )


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_shipped_draft_changes_no_answer_and_is_often_right(
    pair: tuple[LLM, LLM], temperature: float
) -> None:
    off, on = pair
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=60, logprobs=2)
    before = on.stats
    assert on.generate(list(BEGINNINGS), params) == off.generate(list(BEGINNINGS), params)
    drafted = on.stats.spec_draft_tokens - before.spec_draft_tokens
    accepted = on.stats.spec_accepted_tokens - before.spec_accepted_tokens
    assert accepted > (0.3 if temperature == 0 else 0.15) * drafted > 0


def test_it_does_so_with_stop_strings_forms_and_penalties(pair: tuple[LLM, LLM]) -> None:
    off, on = pair
    text = off.generate(BEGINNINGS[1], SamplingParams(temperature=0, max_tokens=60))[0].text
    stop = text[len(text) // 2 :][:3]
    for params in (
        SamplingParams(temperature=0, max_tokens=60, repetition_penalty=1.2, min_tokens=20),
        SamplingParams(temperature=1.0, seed=2, top_p=0.9, top_k=40, max_tokens=60),
        SamplingParams(
            temperature=1.0, seed=3, max_tokens=60, grammar=Grammar("regex", r"(\w+ = \d+\n){3,9}")
        ),
    ):
        expected = off.generate(list(BEGINNINGS), params, stop=[stop])
        assert on.generate(list(BEGINNINGS), params, stop=[stop]) == expected
