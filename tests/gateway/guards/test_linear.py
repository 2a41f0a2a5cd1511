"""Messages, arguments and streams made to keep guardrails busy: four times as much takes about four
times as long, not sixteen times."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from headrace.gateway.guards.findings import findings
from headrace.gateway.guards.growing import Growing
from headrace.gateway.guards.growing_arguments import GrowingArguments
from headrace.gateway.guards.guard import Guard, Subject
from headrace.gateway.guards.json_shape import JsonShape
from headrace.gateway.guards.originals import Originals
from headrace.gateway.guards.patterns import Patterns
from headrace.gateway.guards.stream import StreamGuards
from headrace.gateway.guards.text_span import TextSpan, TooDeepError, request_passages

MAIL = Patterns((r"[a-z]+@[a-z]+\.[a-z]+",), "[X]", 64)
# Between the four of linear time and the sixteen of quadratic time.
MOST_RATIO = 8.5
MOST_TRIES = 4

Work = Callable[[], object]


def arguments(text: str) -> Work:
    return lambda: findings(MAIL, [TextSpan(("a",), "user", "arguments", text)], None)


def parts(number: int) -> Work:
    content = [{"type": "text", "text": "mail a@b.co"}] * number
    passages = request_passages("openai-chat", {"messages": [{"role": "user", "content": content}]})
    return lambda: findings(MAIL, passages, None)


def values(number: int) -> Work:
    return arguments(json.dumps(["a@b.co"] * number))


def quotes_without_an_end(number: int) -> Work:
    return arguments('"' + r"\"" * number)


def marks(number: int) -> Work:
    originals = Originals()
    text = "".join(originals.mark("[EMAIL]", f"a{at}@b.co") for at in range(number))
    return lambda: originals.find(text + "[EMAIL_x" * 10 * number, 0)


def marks_in_a_stream(number: int) -> Work:
    originals = Originals()
    pieces = [originals.mark("[EMAIL]", f"a{at}@b.co") for at in range(number)]
    return lambda: grown(Growing(originals), pieces)


def growing_values(number: int) -> Work:
    text = json.dumps(["a@b.co"] * number)
    return lambda: grown(GrowingArguments(MAIL), [text])


def growing_escapes(number: int) -> Work:
    text = '"' + r"\n" * number + '"'
    return lambda: grown(GrowingArguments(MAIL), [text])


def parts_of_an_answer_with_a_schema(number: int) -> Work:
    shape = JsonShape({"type": "array"})
    texts = ["[", *["1,"] * number, "1]"]
    passages = tuple(TextSpan(("c", at), "assistant", "text", one) for at, one in enumerate(texts))
    return lambda: asyncio.run(shape(Subject(on="output", passages=passages)))


def grown(text: Growing | GrowingArguments, pieces: Iterable[str]) -> None:
    for piece in pieces:
        text.grow(piece)
        text.found()
    text.end()
    text.found()


def choice(index: int, text: str) -> dict[str, Any]:
    return {"index": index, "delta": {"content": text}}


def ended(index: int) -> dict[str, Any]:
    return {"index": index, "delta": {}, "finish_reason": "stop"}


def event(*choices: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": choices}).encode() + b"\n\n"


def streamed(pieces: list[bytes]) -> Work:
    def work() -> None:
        guard = Guard(name="g", on=frozenset(("output",)), action="redact", finder=MAIL)
        subject = Subject(on="output", passages=(), dialect="openai-chat")
        passing = StreamGuards([guard], subject, [].append)
        for piece in pieces:
            passing.feed(piece)

    return work


def matches_behind_a_choice_that_waits(number: int) -> Work:
    more = [event(choice(1, "a@b.co " * 30)) for _ in range(number)]
    return streamed([event(choice(0, "Hi")), *more, event(ended(0), ended(1))])


def choices_that_end_one_by_one(number: int) -> Work:
    begun = event(*(choice(at, "a@b.co") for at in range(number)))
    return streamed([begun, *(event(ended(at)) for at in range(number))])


def an_event_in_many_pieces(number: int) -> Work:
    told = event(choice(0, "x" * 100 * number))
    return streamed([told[at : at + 100] for at in range(0, len(told), 100)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("made", "number"),
    [
        (parts, 1500), (values, 1500), (quotes_without_an_end, 6000), (marks, 3000),
        (marks_in_a_stream, 1500), (growing_values, 1500), (growing_escapes, 200_000),
        (matches_behind_a_choice_that_waits, 300), (choices_that_end_one_by_one, 1500),
        (an_event_in_many_pieces, 3000), (parts_of_an_answer_with_a_schema, 50_000),
    ],
)  # fmt: skip
def test_work_grows_as_the_text_does(made: Callable[[int], Work], number: int) -> None:
    ratios = []
    for _ in range(MOST_TRIES):
        ratios.append(taken_s(made(4 * number)) / taken_s(made(number)))
        if ratios[-1] < MOST_RATIO:
            return
    pytest.fail(f"four times as much took {ratios} times as long")


def taken_s(work: Work) -> float:
    # A little is added to what is too short to be told from nothing.
    before_s = time.process_time()
    work()
    return time.process_time() - before_s + 0.001


def test_a_match_that_grows_is_looked_at_a_few_times_not_for_each_token() -> None:
    class Counting(Patterns):
        chars = 0

        def find(self, text: str, start: int) -> Any:
            Counting.chars += len(text) - start
            return super().find(text, start)

    finder = Counting(("a+",), "", 64)
    grown(Growing(finder), ["a"] * 20_000)
    assert Counting.chars < 20 * 20_000


@pytest.mark.parametrize("field", ["messages", "tools"])
def test_what_is_nested_too_deep_is_not_looked_at(field: str) -> None:
    body: Any = "text"
    for at in range(120):
        body = [body] if at % 2 else {"x": body}
    assert len(request_passages("openai-chat", {field: [body]})) == 1
    for _ in range(10):
        body = [body]
    with pytest.raises(TooDeepError):
        request_passages("openai-chat", {field: [body]})
