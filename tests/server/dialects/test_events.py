"""An answer's events do not depend on how it was cut, and keep the grammar of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.conversation.reading import AnswerReading
from headrace.engine.messages import TokenLogprob
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
)
from headrace.server.dialects.events import ChoiceEvents
from headrace.server.dialects.thought_signature import SHOWN_THOUGHT, sealed_thought
from headrace.server.generation.pieces import Piece
from headrace.text import Tokenizer
from tests.server.dialects.conftest import CALLS, FORMAT, SAYS, SCHEMA, THINKS

READING = AnswerReading(FORMAT, {"look": SCHEMA}, reasoning_opened=False, kept_ids=frozenset())
TEXTS = [
    "",
    "plain",
    THINKS + SAYS + CALLS + CALLS,
    SAYS + "<think>late",
    "<tool_call>\n{bad",
    CALLS,
]


def events(pieces: Sequence[str], reading: AnswerReading | None = READING, **options: Any) -> Any:
    """Parts as (kind, name, text, signature) and the end, of an answer that came in pieces."""
    choice = ChoiceEvents(0, reading, lambda: "0123456789abcdef" * 2, **options)
    made: list[Event] = []
    for number, text in enumerate(pieces):
        last = number == len(pieces) - 1
        made += choice.take(Piece(text, [1] * len(text), finish_reason="stop" if last else None))
    return folded(made), choice.end


def folded(made: Sequence[Event]) -> list[list[Any]]:
    """The parts that events add up to; asserts the grammar."""
    parts: list[list[Any]] = []
    is_open = False
    for event in made:
        if isinstance(event, PartStart):
            assert not is_open and event.part == len(parts)
            parts.append([event.kind, event.name, "", None])
        elif isinstance(event, PartDelta):
            assert is_open and event.part == len(parts) - 1
            parts[-1][2] += event.text
        else:
            assert isinstance(event, PartEnd)
            assert is_open and event.part == len(parts) - 1
            parts[-1][3] = event.signature
        is_open = not isinstance(event, PartEnd)
    assert not is_open
    return parts


@pytest.mark.parametrize("text", TEXTS)
def test_every_cut_gives_the_same_parts(text: str) -> None:
    whole = events([text])
    assert events([*text, ""]) == whole
    for at in range(len(text) + 1):
        assert events([text[:at], text[at:]]) == whole, at


def test_parts_of_an_answer() -> None:
    parts, end = events([*(THINKS + SAYS + CALLS + CALLS)], signs_thoughts=True)
    assert [kind for kind, *_ in parts] == ["thinking", "text", "tool_call", "tool_call"]
    assert parts[0][2:] == ["hm, é", SHOWN_THOUGHT]
    assert parts[2][1] == "look"
    assert end == ChoiceEnd(choice=0, reason="tool_calls")


def test_thoughts_that_are_not_shown_are_sealed_into_the_signature() -> None:
    parts, _ = events([*THINKS, "a"], shows_thoughts=False)
    assert parts[0] == ["thinking", "", "", sealed_thought("hm, é")]


@pytest.mark.parametrize(
    ("reason", "told"), [("stop", "stop"), ("length", "length"), ("timeout", "length")]
)
def test_reasons(reason: str, told: str) -> None:
    choice = ChoiceEvents(0, None, str)
    assert list(choice.take(Piece("", (), finish_reason=reason, stop_reason=7))) == []
    assert choice.end == ChoiceEnd(choice=0, reason=told)


def test_log_probabilities_go_with_the_next_text_and_none_is_lost(tokenizer: Tokenizer) -> None:
    choice = ChoiceEvents(1, None, str, tokenizer=tokenizer)
    made: list[Event] = []
    for text, ids in (("", [104]), ("hi", [105]), ("", [257])):
        tokens = [TokenLogprob(one, -1.0, 1, []) for one in ids]
        reason = None if ids != [257] else "stop"
        made += choice.take(Piece(text, ids, tokens, finish_reason=reason))
    deltas = [event for event in made if isinstance(event, PartDelta)]
    assert [len(one.logprobs or ()) for one in deltas] == [2, 1]
    assert "".join(one.text for one in deltas) == "hi"
