"""Tokens of reasoning are those between its marks, whatever they are and however they come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate, product
from typing import NamedTuple

import pytest

from headrace.answer_formats.formats import AnswerFormat, call_format, reasoning_format
from headrace.conversation.reading import AnswerReading, ReadChoice
from headrace.text import TextStream
from tests.text.vocabularies import byte_level, from_gguf

TAGS = AnswerFormat(None, reasoning_format("think"))
CODER = AnswerFormat(call_format("qwen3_coder"), reasoning_format("think"))
HARMONY = AnswerFormat(call_format("harmony"), reasoning_format("harmony"))
BYTES = from_gguf(byte_level())


class Case(NamedTuple):
    """An answer, in which the thoughts are between braces that it is without."""

    format: AnswerFormat
    text: str
    opened: bool = False


CALL = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
ANALYSIS = "<|channel|>analysis<|message|>"
CASES = [
    Case(TAGS, "<think>{\nab\n\n}</think>\nc"),
    Case(TAGS, "\n<think>{a}</think>"),
    Case(TAGS, "{ a b}</think>c", opened=True),
    Case(TAGS, "{}</think>c", opened=True),
    Case(TAGS, "{ \n}</think>\n\nc", opened=True),
    Case(TAGS, "<think>{\na<}</think>c<", opened=True),
    Case(TAGS, "{a</thin <</</think}</think>c</think>", opened=True),
    Case(TAGS, "{a </thi}", opened=True),
    Case(TAGS, "{\n}", opened=True),
    Case(TAGS, "<think>{x \n y}"),
    Case(TAGS, "c <think>d</think>"),
    Case(TAGS, "<thin"),
    Case(CODER, "{a \n}" + CALL + "</think>", opened=True),
    Case(CODER, "<think>{\n}" + CALL),
    Case(CODER, "{a <tool_call>\n<function=nope> b}</think>" + CALL, opened=True),
    Case(HARMONY, ANALYSIS + "{a}<|end|><|start|>assistant" + ANALYSIS + "{ b\n}<|end|>"),
    Case(HARMONY, ANALYSIS + "{a}<|end|><|start|>assistant<|channel|>final<|message|>c"),
]


def starts_of(tokens: Sequence[str]) -> list[int]:
    return [0, *accumulate(map(len, tokens))][: len(tokens)]


def expected(case: Case, starts: Sequence[int]) -> int:
    """The tokens that begin within the braces; the last ones too where these end the answer."""
    inside, place = set(), 0
    within = False
    for character in case.text:
        if character in "{}":
            within = character == "{"
            continue
        if within:
            inside.add(place)
        place += 1
    if case.text.endswith("}") and not case.text.endswith("{}"):
        inside.add(place)
    return sum(start in inside for start in starts)


def counted(case: Case, tokens: Sequence[str], cuts: Sequence[bool], lag: int = 0) -> int:
    """The count where pieces end behind the tokens that `cuts` marks, and the text lags so many
    characters behind them."""
    reading = AnswerReading(
        case.format, {"now": {}}, reasoning_opened=case.opened, kept_ids=frozenset()
    )
    choice = ReadChoice(reading, str)
    text, starts = "".join(tokens), starts_of(tokens)
    given = shown = 0
    for end, cut in enumerate(cuts, 1):
        if cut and end < len(tokens):
            reach = max(shown, starts[end] - lag)
            choice.take(text[shown:reach], starts[given:end], is_last=False)
            given, shown = end, reach
    choice.take(text[shown:], starts[given:], is_last=True)
    return choice.reasoning_tokens


def some_tokens(text: str, source: random.Random) -> list[str]:
    """A text in tokens of one to nine characters, some of no text between them."""
    tokens: list[str] = []
    while text:
        size = source.choice((0, 1, 1, 2, 3, 9))
        tokens.append(text[:size])
        text = text[size:]
    return tokens


@pytest.mark.parametrize("case", CASES)
def test_tokens_that_begin_within_the_thoughts_count(case: Case) -> None:
    text = case.text.replace("{", "").replace("}", "")
    tokens = [*text, ""]
    every = [True] * len(tokens)
    assert counted(case, tokens, every) == expected(case, starts_of(tokens))


@pytest.mark.parametrize("case", CASES)
def test_the_count_is_the_same_at_every_cut(case: Case) -> None:
    text = case.text.replace("{", "").replace("}", "")
    source = random.Random(case.text)
    for _ in range(4):
        tokens = some_tokens(text, source)
        count = expected(case, starts_of(tokens))
        for lag in (0, 1, 4):
            for _ in range(12):
                cuts = [source.random() < 0.5 for _ in tokens]
                assert counted(case, tokens, cuts, lag) == count, (tokens, cuts, lag)


@pytest.mark.parametrize(
    ("tokens", "count"),
    [
        (["<think>", "\n", "a", "b", "\n", "</think>", "\n\n", "c"], 4),
        (["<", "think", ">\n", "a b", " c", "</", "think", ">\n\n", "d"], 2),
        (["<think", ">a", "b<", "/think", ">c"], 1),
        (["<think>a", "b", "c</think>d", "e"], 2),
        (["<think>", "List<", "</think>", "c"], 1),
        (["<think>", "</think>", "c"], 0),
        (["<think>a</think>c", "d"], 0),
        (["<think>", "a", "b"], 2),
    ],
)
def test_every_cut_of_tokens_gives_one_count(tokens: list[str], count: int) -> None:
    case = Case(TAGS, "")
    counts = {
        counted(case, tokens, cuts, lag)
        for cuts in product((False, True), repeat=len(tokens))
        for lag in (0, 3)
    }
    assert counts == {count}


def test_a_character_that_is_broken_off_is_not_the_mark_behind_it() -> None:
    half, mark = BYTES.encode("你", add_special_tokens=False)[0], "</think>"
    ids = [*BYTES.encode("a", add_special_tokens=False), half]
    ids += BYTES.encode(mark + "c", add_special_tokens=False)
    reading = AnswerReading(TAGS, None, reasoning_opened=True, kept_ids=frozenset())
    for size in (1, 2, len(ids)):
        stream, choice = TextStream(BYTES), ReadChoice(reading, str)
        for first in range(0, len(ids), size):
            reason = "length" if first + size >= len(ids) else None
            delta = stream.take(ids[first : first + size], reason)
            choice.take(delta.text, delta.text_offsets, is_last=reason is not None)
        assert choice.reasoning_tokens == 2
