"""Outputs of models, as other projects' tests record them, parsed alike at every cut.

The files in cases/ have one output a line, by the format of calls or of reasoning, or, in answers/,
by that of calls with `reasoning_format` beside it. A case has the `output`, what is to be made of
it (`calls`, `content`, `reasoning`), the `tools` of the request, whether the prompt has `opened`
reasoning, and as `source` the file where the output was found. Where that project makes something
else of it, `differs` says what is held here instead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.answer_formats.deltas import ParsedAnswer
from headrace.answer_formats.formats import AnswerFormat, call_format, reasoning_format
from tests.answer_formats.cuts import cuts, parsed, some_cuts

FILES = sorted((Path(__file__).parent / "cases").glob("*/*.json"))
CASES: list[tuple[str, str, dict[str, Any]]] = [
    (path.parent.name, path.stem, case)
    for path in FILES
    for case in json.loads(path.read_text(encoding="utf-8"))
]


def format_of(kind: str, name: str, case: dict[str, Any]) -> AnswerFormat:
    if kind == "reasoning":
        return AnswerFormat(reasoning=reasoning_format(name))
    reasoning = case.get("reasoning_format")
    return AnswerFormat(
        None if name == "none" else call_format(name),
        None if reasoning is None else reasoning_format(reasoning),
    )


def check(case: dict[str, Any], answer: ParsedAnswer) -> None:
    assert answer.content == case.get("content", "")
    assert answer.reasoning == case.get("reasoning", "")
    expected = case.get("calls", [])
    assert [call.name for call in answer.calls] == [call["name"] for call in expected]
    for call, wanted in zip(answer.calls, expected, strict=True):
        assert call.fault == wanted.get("fault", "")
        if "text" in wanted:
            assert call.arguments == wanted["text"]
        else:
            assert json.loads(call.arguments) == wanted["arguments"]


@pytest.mark.parametrize(
    ("kind", "name", "case"),
    CASES,
    ids=[f"{kind}-{name}-{number}" for number, (kind, name, _) in enumerate(CASES)],
)
def test_outputs_of_models_are_read(kind: str, name: str, case: dict[str, Any]) -> None:
    format, opened = format_of(kind, name, case), case.get("opened", False)
    check(case, parsed(format, case["output"], opened, case.get("tools"), some_cuts))


@pytest.mark.every_cut
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_outputs_of_models_are_read_alike_at_every_cut(path: Path) -> None:
    for case in json.loads(path.read_text(encoding="utf-8")):
        format, opened = format_of(path.parent.name, path.stem, case), case.get("opened", False)
        check(case, parsed(format, case["output"], opened, case.get("tools"), cuts))


def test_there_are_hundreds_of_outputs() -> None:
    assert len(CASES) >= 950
    assert all(case.keys() >= {"source", "output"} for _, _, case in CASES)
