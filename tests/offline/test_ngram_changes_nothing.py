"""The cases of https://github.com/vllm-project/vllm/issues/41758, where look-ups changed 20 greedy
answers of 20: a word 48 times, 32 tokens, look-ups of 2 to 5 tokens, 4 drafts."""

from __future__ import annotations

import json

import pytest

from headrace import LLM, SamplingParams
from headrace.embedded import embedded_model

SETTING = {
    "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5,
}  # fmt: skip
WORDS = (
    "serving", "return", "import ", "self", "x ", "def", "None", "for", "(", "\n", "0", "value",
    "assert", "class", "raise", "#", "{}", "a b", "if not", "    ",
)  # fmt: skip


PARAMS = SamplingParams(temperature=0, top_p=1, seed=42, max_tokens=32, logprobs=1)


def base(setting: str) -> LLM:
    return LLM(str(embedded_model()), num_gpu_blocks_override=256, speculative_config=setting)


def answers_of(llm: LLM) -> list[tuple[object, ...]]:
    answers = [llm.generate(48 * word, PARAMS)[0] for word in WORDS]
    return [(answer.token_ids, answer.logprobs, answer.finish_reason) for answer in answers]


@pytest.fixture(scope="module")
def expected() -> list[tuple[object, ...]]:
    off = base("none")
    answers = answers_of(off)
    assert len(answers) == 20 and off.stats.spec_draft_tokens == 0
    return answers


@pytest.fixture(params=[True, False])
def on(request: pytest.FixtureRequest) -> LLM:
    """With look-ups in every step, and where they are believed to pay."""
    return base(json.dumps({**SETTING, "adaptive": not request.param}))


def test_greedy_answers_to_prompts_that_repeat_a_word_are_those_without_look_ups(
    expected: list[tuple[object, ...]], on: LLM
) -> None:
    assert answers_of(on) == expected
    assert on.stats.spec_accepted_tokens > 0
