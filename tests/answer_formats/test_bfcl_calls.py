"""Questions of the Berkeley Function Calling Leaderboard: their answers, as models of each format
write them, are read as the calls that they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.answer_formats.call_syntax import AnswerFormat, CallFormat
from headrace.answer_formats.deltas import ParsedAnswer
from headrace.answer_formats.formats import CALL_FORMATS
from tests.answer_formats.bfcl import PARTS, PER_PART, questions, writer
from tests.answer_formats.cuts import parsed, some_cuts

pytestmark = pytest.mark.matrix


def calls_of(answer: ParsedAnswer) -> list[tuple[str, Any]]:
    assert {call.fault for call in answer.calls} <= {""}
    return [(call.name, json.loads(call.arguments)) for call in answer.calls]


@pytest.mark.parametrize("format", CALL_FORMATS, ids=lambda format: str(format.name))
def test_answers_are_read_as_their_calls(shared_assets: Path, format: CallFormat) -> None:
    write, num_read = writer(shared_assets, format), 0
    for question in questions(shared_assets):
        text = write(question)
        answer = parsed(AnswerFormat(format), text, tools=question.schemas, cut=some_cuts)
        assert calls_of(answer) == question.calls, text
        assert answer.content.strip() == ""
        num_read += 1
    assert num_read == len(PARTS) * PER_PART
