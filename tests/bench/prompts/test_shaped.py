"""Shared prefixes, salts, and sessions: who shares what with whom."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, pairwise, takewhile
from typing import Any

import pytest

from headrace.bench.client.prompt import Prompt
from headrace.bench.prompts.exact import PromptWriter
from headrace.bench.prompts.lengths import Fixed, Independent, Uniform
from headrace.bench.prompts.options import RequestOptions
from headrace.bench.prompts.salt import SALT_WORDS, draw_salts, salted
from headrace.bench.prompts.shared_prefix import shared_prefix
from headrace.bench.prompts.synthetic import synthetic
from headrace.bench.prompts.think import ThinkTime
from headrace.bench.prompts.turns import synthetic_sessions
from headrace.bench.workload import AWAITED_ANSWER, WorkItem
from headrace.errors import ConfigError
from tests.bench.prompts.tokenizers import OfWords, shipped


def common(one: Any, other: Any) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@pytest.mark.parametrize("token_ids", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
def test_shared_prefixes(token_ids: bool, shuffled: bool) -> None:
    made = shared_prefix(
        PromptWriter(shipped()),
        10,
        3,
        Fixed(64),
        Independent(Fixed(32), Fixed(7)),
        random.Random(1),
        shuffled=shuffled,
        token_ids=token_ids,
    )
    ids = [
        item.prompt.token_ids if token_ids else shipped().encode(item.prompt.text or "")
        for item in made
    ]
    assert {len(one or ()) for one in ids} == {96}
    groups = [tuple(one or ())[:64] for one in ids]
    assert sorted(Counter(groups).values()) == [3, 3, 4]
    assert len({tuple(one or ()) for one in ids}) == 10
    changes = sum(before != after for before, after in pairwise(groups))
    assert (changes == 2) is not shuffled
    assert made.missed == ()


def test_shared_prefixes_by_seed() -> None:
    def made(seed: int) -> str:
        sizes = Independent(Uniform(5, 50), Uniform(1, 9))
        source = random.Random(seed)
        return shared_prefix(
            PromptWriter(shipped()), 8, 2, Uniform(8, 16), sizes, source
        ).fingerprint

    assert made(1) == made(1) != made(2)


@pytest.mark.parametrize(("count", "prefixes"), [(0, 1), (1, 0)])
def test_no_prefixes(count: int, prefixes: int) -> None:
    sizes = Independent(Fixed(5), Fixed(5))
    with pytest.raises(ConfigError, match="must be 1 or more"):
        shared_prefix(PromptWriter(OfWords()), count, prefixes, Fixed(5), sizes, random.Random(1))


def test_salts_are_all_different() -> None:
    salts = draw_salts(20_000, random.Random(1))
    assert len(set(salts)) == 20_000
    assert all(len(one.split()) == SALT_WORDS for one in salts)


@pytest.mark.parametrize("form", ["text", "token_ids"])
def test_salted_prompts_keep_their_length_and_share_no_block(form: str) -> None:
    made = synthetic(
        PromptWriter(shipped()),
        30,
        Independent(Fixed(40), Fixed(5)),
        random.Random(2),
        form=form,  # type: ignore[arg-type]
        salts=random.Random(3),
    )
    ids = [one.prompt.token_ids or shipped().encode(one.prompt.text or "") for one in made]
    assert {len(one) for one in ids} == {40}
    assert max(common(one, other) for one, other in combinations(ids, 2)) < 12


def test_prompts_too_short_for_a_salt() -> None:
    sizes = Independent(Uniform(1, 3), Fixed(5))
    made = synthetic(PromptWriter(OfWords()), 20, sizes, random.Random(2), salts=random.Random(3))
    assert made.missed == ()


def items() -> list[WorkItem]:
    parts = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    return [
        WorkItem(prompt=Prompt(text="a b"), prompt_tokens_asked=2),
        WorkItem(prompt=Prompt(messages=({"role": "user", "content": parts},))),
        WorkItem(prompt=Prompt(messages=({"role": "system", "content": "s"},)), session=1),
        WorkItem(prompt=Prompt(messages=({"role": "system", "content": "s"},)), session=1, turn=1),
        WorkItem(prompt=Prompt(inputs=("x", "y"))),
        WorkItem(prompt=Prompt(token_ids=tuple(range(50))), prompt_tokens_asked=50),
    ]


def test_salting_whatever_there_is() -> None:
    tokenization = OfWords()
    made = salted(items(), random.Random(4), name="salted", tokenization=tokenization)
    text, pictures, first, second, inputs, ids = (one.prompt for one in made)
    assert (text.text or "").endswith("\na b")
    assert made.items[0].prompt_tokens_asked == len(tokenization.encode(text.text or ""))
    assert pictures.messages
    assert [one["type"] for one in pictures.messages[0]["content"]] == ["text", "image_url"]
    assert first == second
    assert first.messages
    assert first.messages[0]["content"].endswith("\ns")
    assert {one.partition("\n")[2] for one in inputs.inputs or ()} == {"x", "y"}
    assert len(ids.token_ids or ()) == 50 == made.items[5].prompt_tokens_asked
    assert (ids.token_ids or ())[SALT_WORDS:] == tuple(range(50))[SALT_WORDS:]
    again = salted(items(), random.Random(4), name="salted", tokenization=OfWords())
    assert again.fingerprint == made.fingerprint


def test_what_cannot_be_salted() -> None:
    source = random.Random(5)
    with pytest.raises(ConfigError, match="needs the tokenizer"):
        salted(items(), source, name="salted")
    with pytest.raises(ConfigError, match="shorter than its salt"):
        short = [WorkItem(prompt=Prompt(token_ids=(1,)))]
        salted(short, source, name="salted", tokenization=OfWords())
    with pytest.raises(ConfigError, match="no content"):
        empty = Prompt(messages=({"role": "assistant", "content": None},))
        salted([WorkItem(prompt=empty)], source, name="salted")


def test_synthetic_sessions() -> None:
    made = synthetic_sessions(
        PromptWriter(shipped()),
        4,
        Fixed(3),
        Independent(Fixed(20), Fixed(9)),
        random.Random(6),
        think=ThinkTime(low_s=1, high_s=2),
        system_tokens=30,
        options=RequestOptions(ignore_eos=True),
    )
    assert [(one.session, one.turn) for one in made] == [(s, t) for s in range(4) for t in range(3)]
    assert len({(one.prompt.messages or ())[0]["content"] for one in made}) == 1
    for one in made:
        said = [message["role"] for message in one.prompt.messages or ()]
        assert said == ["system", "user", *["assistant", "user"] * one.turn]
        answers = [m["content"] for m in one.prompt.messages or () if m["role"] == "assistant"]
        assert answers == [AWAITED_ANSWER] * one.turn
        assert (one.think_ns == 0) is (one.turn == 0)
        assert one.think_ns <= 2_000_000_000
        assert (one.prompt.max_tokens, one.prompt.ignore_eos) == (9, True)
        question = (one.prompt.messages or ())[-1]["content"]
        assert len(shipped().encode(question)) == 20
