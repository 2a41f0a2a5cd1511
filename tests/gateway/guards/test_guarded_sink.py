"""The way back past guardrails: heads that wait, signs of life, what is no answer."""

from __future__ import annotations

import pytest

from headrace.gateway.guards.action import Acted, GuardBlockedError
from headrace.gateway.guards.guard import Guard, Subject, Verdict
from headrace.gateway.guards.guarded_sink import GuardedSink
from headrace.gateway.guards.patterns import Patterns

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'


class Kept:
    """What a client was told."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, dict[str, str]]] = []
        self.pieces: list[bytes] = []
        self.ended = False

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.heads.append((status, dict(headers)))

    async def write(self, piece: bytes) -> None:
        self.pieces.append(piece)

    async def last(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.ended = True

    async def end(self) -> None:
        self.ended = True


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


async def fine(_subject: Subject) -> Verdict:
    return Verdict()


WHOLE = Guard(name="w", on=frozenset(("output",)), action="block", look=fine)
WORDS = Guard(
    name="g",
    on=frozenset(("output",)),
    action="block",
    finder=Patterns(("secret",), "[X]", 16),
)


def sink(kept: Kept, guard: Guard, clock: Clock, *, stream: bool) -> GuardedSink:
    return GuardedSink(
        kept,
        (guard,),
        Subject(on="output", passages=(), dialect="openai-chat"),
        [Acted("i", "warn")],
        stream=stream,
        fails=lambda error: b"told: " + str(error).encode(),
        keep_alive=b": ping\n\n",
        clock_ns=clock,
    )


async def test_a_stream_that_is_held_gives_signs_of_life() -> None:
    kept, clock = Kept(), Clock()
    way = sink(kept, WHOLE, clock, stream=True)
    await way.start(200, [("a", "b")])
    assert kept.heads == [(200, {"a": "b", "x-headrace-guardrails": "i=warn"})]
    for _ in range(4):
        clock.now_ns += 6 * 10**9
        await way.write(CHUNK)
    assert kept.pieces == [b": ping\n\n"] * 2
    await way.end()
    assert kept.pieces[2:] == [CHUNK * 4] and kept.ended


async def test_the_head_of_a_whole_answer_waits_for_its_body() -> None:
    kept = Kept()
    way = sink(kept, WORDS, Clock(), stream=False)
    await way.start(200, [("content-length", "99"), ("a", "b")])
    await way.write(b'{"choices": [{"message": {"content": ')
    assert not kept.heads
    with pytest.raises(GuardBlockedError):
        await way.last(b'"a secret"}}]}')
    assert not kept.heads and not kept.pieces, "the client can still be told anything"
    await way.start(400, [("c", "d")])
    await way.last(b"refused: a secret")
    assert kept.heads[0][0] == 400 and kept.pieces == [b"refused: a secret"] and kept.ended


async def test_an_error_is_no_answer_and_passes() -> None:
    kept = Kept()
    way = sink(kept, WORDS, Clock(), stream=True)
    await way.start(502, [])
    await way.last(b"a secret")
    assert kept.heads[0][0] == 502 and kept.pieces == [b"a secret"]


async def test_a_blocked_stream_is_ended_once() -> None:
    kept = Kept()
    way = sink(kept, WORDS, Clock(), stream=True)
    await way.start(200, [])
    with pytest.raises(GuardBlockedError) as raised:
        await way.write(CHUNK.replace(b"hi", b"a secret, and more than a window of it"))
    assert raised.value.told and kept.ended
    assert kept.pieces == [b"told: refused by the guardrail g: found pattern 1"]
