"""Calls of functions whose arguments come piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.gemini.reply import streamed_call as streamed_call_module
from headrace.protocol.neutral.event import (
    PartStart,
    ReplyFailure,
)
from headrace.protocol.neutral.part import ToolCall
from tests.protocol.dialects.gemini.samples import answer, events_of
from tests.protocol.dialects.gemini.test_read_reply import SIGNED, last, streamed


def streamed_call(**call: Any) -> dict[str, Any]:
    return answer({"functionCall": call})


def argument(path: str, goes_on: bool = False, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value} | ({"willContinue": True} if goes_on else {})


def arguments_of(*pieces: dict[str, Any]) -> str:
    (call,) = streamed(*pieces).parts
    assert isinstance(call, ToolCall)
    return call.arguments


OPENED = streamed_call(name="cook", willContinue=True)


def more(*arguments: dict[str, Any]) -> dict[str, Any]:
    return streamed_call(partialArgs=list(arguments), willContinue=True)


def test_streamed_arguments_are_one_whole_call() -> None:
    choice = streamed(
        answer(
            {"functionCall": {"name": "cook", "willContinue": True}, "thoughtSignature": "c2ln"}
        ),
        more(argument("$.name", True, stringValue="Pie ")),
        more(argument("$.name", stringValue='\u00e0 la "x"')),
        more(
            argument("$.steps[0].minutes", numberValue=5),
            argument("$.steps[0].hot", boolValue=True),
        ),
        streamed_call(willContinue=True),
        more(argument("$.steps[1].minutes", numberValue=0.5)),
        more(argument("$['odd name'][0]", nullValue="NULL_VALUE")),
        streamed_call(),
        streamed_call(name="rest", willContinue=True),
        streamed_call(),
        last(),
    )
    cook, rest = choice.parts
    assert isinstance(cook, ToolCall) and isinstance(rest, ToolCall)
    assert json.loads(cook.arguments) == {
        "name": 'Pie \u00e0 la "x"',
        "steps": [{"minutes": 5, "hot": True}, {"minutes": 0.5}],
        "odd name": [None],
    }
    assert (cook.signature, cook.id, rest.id) == (SIGNED, "call_r1_0", "call_r1_1")
    assert (rest.arguments, choice.finish) == ("{}", "tool_calls")


def test_the_last_piece_of_a_streamed_call_may_hold_a_value_or_be_missing() -> None:
    value = argument("$.a", numberValue=1)
    closing = streamed_call(partialArgs=[value])
    assert arguments_of(OPENED, closing, last()) == '{"a":1}'
    assert arguments_of(OPENED, more(value), last()) == '{"a":1}'
    assert arguments_of(streamed_call(name="f", partialArgs=[value]), last()) == '{"a":1}'
    mixed = streamed_call(name="f", args={"b": 2}, willContinue=True)
    assert arguments_of(mixed, closing, last()) == '{"b":2,"a":1}'


def test_texts_of_a_streamed_call_may_grow_side_by_side() -> None:
    assert (
        arguments_of(
            OPENED,
            more(argument("$.a", True, stringValue="1"), argument("$.b", True, stringValue="x")),
            more(argument("$.a", stringValue="2"), argument("$.b", True)),
            more(argument('$["b"]', stringValue="y")),
            last(),
        )
        == '{"a":"12","b":"xy"}'
    )


WITHIN = more(argument("$.a", True, stringValue="Bos"))


@pytest.mark.parametrize(
    "pieces",
    [
        (WITHIN, streamed_call(), last()),
        (WITHIN, last()),
        (more(argument("$.a", numberValue=1)), last(reason="MAX_TOKENS")),
        (more(argument("$.a", numberValue=1)), streamed_call(name="next", willContinue=True)),
        (more(argument("$.a", numberValue=1)), more(argument("$.a.b", numberValue=1))),
        (more(argument("$.a[1]", numberValue=1)),),
        (more(argument("$.a[*]", numberValue=1)),),
        (more(argument("$", numberValue=1)),),
        (more(argument("a", numberValue=1)),),
        (more(argument("$" + ".a" * 100, numberValue=1)),),
        (more(argument("$.a")),),
        (more(argument("$.a", numberValue=1, boolValue=True)),),
        (more(argument("$.a", True, stringValue="1")), more(argument("$.a", numberValue=1))),
        (more(*(argument(f"$.a[{at}]", numberValue=1) for at in (0, 2))),),
        (streamed_call(args=[], willContinue=True),),
        (streamed_call(partialArgs={}, willContinue=True),),
        (streamed_call(partialArgs=[1], willContinue=True),),
        (more(argument("$['\\q']", numberValue=1)),),
    ],
    ids=range(18),
)
def test_a_damaged_streamed_call_is_never_reported(pieces: tuple[dict[str, Any], ...]) -> None:
    events = events_of(OPENED, *pieces)
    assert not any(isinstance(event, PartStart) and event.kind == "tool_call" for event in events)
    assert isinstance(events[-1], ReplyFailure)
    assert events[-1].failure.kind == "damaged"


def test_a_streamed_call_that_is_cut_is_never_reported() -> None:
    events = events_of(OPENED, more(argument("$.a", numberValue=1)))
    assert not any(isinstance(event, PartStart) for event in events)
    assert isinstance(events[-1], ReplyFailure)


def test_streamed_arguments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_call_module, "_MOST_CHARACTERS", 1000)
    pieces = [more(argument("$.a", True, stringValue="x" * 300)) for _ in range(3)]
    assert isinstance(events_of(OPENED, *pieces)[-1], ReplyFailure)
