"""Questions of the Berkeley Function Calling Leaderboard: their answers, as models of each format
write them, are read as the calls that they are.

One of each part is read in every format, as its models' template writes them. Every question is
read in one of the formats, which take turns, and so is every text that answers without a call.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from headrace.answer_formats.call_syntax import AnswerFormat, CallFormat
from headrace.answer_formats.deltas import ParsedAnswer
from headrace.answer_formats.formats import CALL_FORMATS
from tests.answer_formats.bfcl import (
    PARTS,
    Question,
    questions,
    some_questions,
    texts,
    writer,
)
from tests.answer_formats.cuts import Cut, cuts, parsed, some_cuts
from tests.answer_formats.writers import written

PER_PART = 1
MOST_PIECE_CHARS = 24

pytestmark = pytest.mark.matrix

each_format = pytest.mark.parametrize("format", CALL_FORMATS, ids=lambda format: str(format.name))


def calls_of(answer: ParsedAnswer) -> list[tuple[str, Any]]:
    assert {call.fault for call in answer.calls} <= {""}
    return [(call.name, json.loads(call.arguments)) for call in answer.calls]


def check(format: CallFormat, question: Question, text: str, cut: Cut) -> None:
    answer = parsed(AnswerFormat(format), text, tools=question.schemas, cut=cut)
    assert calls_of(answer) == question.calls, text
    assert answer.content.strip() == ""


def in_pieces(text: str) -> list[list[str]]:
    """A text in pieces of lengths drawn at random."""
    source, pieces, start = random.Random(text), [], 0
    while start < len(text):
        end = start + source.randint(1, MOST_PIECE_CHARS)
        pieces.append(text[start:end])
        start = end
    return [pieces]


@each_format
def test_answers_are_read_as_their_calls(shared_assets: Path, format: CallFormat) -> None:
    write, num_read = writer(shared_assets, format), 0
    for question in some_questions(shared_assets, PER_PART):
        check(format, question, write(question), some_cuts)
        num_read += 1
    assert num_read == (len(PARTS) + 1) * PER_PART


@each_format
def test_every_question_is_read_in_a_format_by_turns(
    shared_assets: Path, format: CallFormat
) -> None:
    at, num_formats = CALL_FORMATS.index(format), len(CALL_FORMATS)
    chosen = questions(shared_assets)[at::num_formats]
    for _, question in chosen:
        check(format, question, written(format, question.calls), in_pieces)
    assert len(chosen) >= 3000 // num_formats


@each_format
def test_short_answers_are_read_alike_at_every_cut(shared_assets: Path, format: CallFormat) -> None:
    chosen = list(some_questions(shared_assets, PER_PART))
    for several, group in itertools.groupby(
        sorted(chosen, key=lambda question: len(question.calls) > 1),
        key=lambda question: len(question.calls) > 1,
    ):
        shortest = min(group, key=lambda question: len(json.dumps(question.calls)))
        assert several is (len(shortest.calls) > 1)
        check(format, shortest, written(format, shortest.calls), cuts)


def test_texts_beside_functions_are_content_in_a_format_by_turns(
    shared_assets: Path,
) -> None:
    num_read = 0
    for (functions, text), format in zip(
        texts(shared_assets), itertools.cycle(CALL_FORMATS), strict=False
    ):
        schemas = {function["name"]: function["parameters"] for function in functions}
        said = f"all\n{text}" if format.opened_by else text
        answer = parsed(AnswerFormat(format), said, tools=schemas, cut=in_pieces)
        assert (answer.content.strip(), answer.calls) == (text.strip(), ())
        num_read += 1
    assert num_read >= 1100
