"""Work on the client's loop while a run is on: how much of a reply is read at once, by count."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.client import decode as decode_module
from headrace.bench.client.answer_text import STEP_PIECES
from headrace.bench.client.decode import Asked, decode
from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.client.excerpt import END_PIECES, EXCERPT_BYTES, excerpt
from headrace.bench.client.raw import RawReply
from headrace.bench.definitions import DEFINITIONS
from headrace.bench.load import replies as replies_module
from headrace.bench.load.client_run import ClientJob, ClientRun
from headrace.bench.load.plan import closed_plan
from headrace.bench.load.replies import SHOWN_AT_ONCE, Replies
from headrace.bench.record import Failure, RequestRecord
from tests.bench.load.helpers import MS, endpoint, singles
from tests.bench.streams import stream as streamed
from tests.bench.streams import unhurried

ASKED = Asked(index=0, intended_ns=0)


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def said(text: str) -> bytes:
    return event(choices=[{"delta": {"content": text}}])


END = event(choices=[], usage={"completion_tokens": 5000}) + b"data: [DONE]\n\n"
REASON = event(choices=[{"delta": {}, "finish_reason": "stop"}])


def reply(*pieces: bytes, failure: Failure | None = None) -> RawReply:
    """A piece every millisecond."""
    timed = tuple((at * MS, piece) for at, piece in enumerate(pieces, start=1))
    return RawReply(
        begun_ns=0,
        sent_ns=0,
        end_ns=(len(pieces) + 1) * MS,
        status=200,
        headers={"content-type": "text/event-stream"},
        pieces=timed,
        complete=failure is None,
        failure=failure,
    )


def full(raw: RawReply, kind: EndpointKind = "openai-chat") -> RequestRecord:
    return decode(raw, ASKED, kind=kind, stream=True, origin_ns=0)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[RawReply]:
    """What was decoded, as it was handed over."""
    seen: list[RawReply] = []

    def noted(raw: RawReply, *given: Any, **options: Any) -> RequestRecord:
        seen.append(raw)
        return decode(raw, *given, **options)

    monkeypatch.setattr(replies_module, "decode", noted)
    return seen


def held(*raws: RawReply, failed: bool = False, kind: EndpointKind = "openai-chat") -> Replies:
    replies = Replies(kind, 0)
    for index, raw in enumerate(raws):
        asked = Asked(index=index, intended_ns=0)
        replies.add(asked, raw, stream=True, failed=failed)
    return replies


def test_a_look_costs_the_same_for_any_length(decoded: list[RawReply]) -> None:
    raw = reply(*(said("word ") for _ in range(5000)), REASON, END)
    shown = held(raw).show()
    assert shown is not None
    (part,) = decoded
    assert len(part.pieces) <= 2 * END_PIECES
    measure = DEFINITIONS["headrace"].measure
    got, whole = measure(shown, "intended"), measure(full(raw), "intended")
    assert got is not None
    assert whole is not None
    for name in ("ttft", "tpot", "e2e"):
        assert got.times_ns[name] == whole.times_ns[name]


@pytest.mark.parametrize("size", [130, 1000, 5000, 20_000, 1_000_000])
def test_replies_in_pieces_of_any_size_cost_no_more(size: int, decoded: list[RawReply]) -> None:
    """Those that came late come in large pieces: a view without them would be a kind one."""
    body = b"".join([*(said(f"{at} ") for at in range(3000)), REASON, END])
    raw = reply(*(body[at : at + size] for at in range(0, len(body), size)))
    shown = held(raw).show()
    assert shown is not None
    assert shown.failure is None
    (part,) = decoded
    assert len(part.pieces) <= 4 * END_PIECES
    assert len(part.body) <= EXCERPT_BYTES
    assert shown.content[0] == full(raw).content[0]
    assert shown.content[-1] == full(raw).content[-1]
    assert shown.output_tokens == 5000


@pytest.mark.long
@unhurried
@given(st.data())
def test_an_excerpt_has_events_of_the_reply_and_no_others(data: st.DataObject) -> None:
    line_end = data.draw(st.sampled_from([b"\n\n", b"\r\n\r\n"]))
    body = b"".join([*(said(f"{at} ") for at in range(400)), REASON, END])
    body = body.replace(b"\n\n", line_end)
    sizes = data.draw(st.lists(st.integers(1, 3000), min_size=1, max_size=60))
    pieces, start = [], 0
    while start < len(body):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(body[start : start + size])
        start += size
    raw = reply(*pieces)
    part = excerpt(raw, stream=True)
    if part is not None:
        assert set(full(part.raw).chunks) <= set(full(raw).chunks)
        assert len(part.raw.body) <= EXCERPT_BYTES
        assert len(part.raw.pieces) <= 4 * END_PIECES


def test_lines_of_json_have_other_ends(decoded: list[RawReply]) -> None:
    lines = [b'{"message":{"content":"w"},"done":false}\n'] * 999
    raw = reply(*lines, b'{"done":true,"eval_count":999}\n')
    shown = held(raw, kind="ollama").show()
    assert shown is not None
    assert shown.output_tokens == 999
    assert len(decoded[0].pieces) <= 2 * END_PIECES


@pytest.mark.parametrize(
    "raw",
    [
        reply(said("x" * EXCERPT_BYTES), REASON, END),
        # No boundary between events where one is looked for.
        reply(*(b"data: x" for _ in range(4000))),
    ],
)
def test_what_is_too_much_is_not_begun(raw: RawReply, decoded: list[RawReply]) -> None:
    assert held(raw).show() is None
    assert decoded == []


def test_a_beginning_or_an_end_without_content_tells_no_times() -> None:
    words = [said("word ") for _ in range(300)]
    waits = [b": keep-alive\n\n"] * 100
    assert held(reply(*waits, *words, REASON, END)).show() is None
    assert held(reply(*words, *waits, REASON, END)).show() is None


def test_the_latest_few_are_shown_and_all_are_in_the_records_once() -> None:
    replies = held(*(reply(said("a"), REASON, END) for _ in range(30)))
    shown = []
    while (record := replies.show()) is not None:
        shown.append(record.index)
    assert shown == list(range(29, 29 - SHOWN_AT_ONCE, -1))
    assert [one.index for one in replies.all()] == list(range(30))
    assert replies.show() is None


def test_what_was_decoded_for_room_is_not_shown_again(decoded: list[RawReply]) -> None:
    replies = held(reply(said("a"), REASON, END), reply(said("b"), REASON, END))
    assert [one.index for one in replies.read(1)] == [1]
    shown = replies.show()
    assert shown is not None
    assert shown.index == 0
    assert replies.show() is None


def test_a_failure_that_only_the_body_shows_is_counted_once() -> None:
    error = event(error={"message": "out of memory"})
    long = reply(*(said("word ") for _ in range(100)), error)
    replies = held(long, reply(error))
    while replies.show() is not None:
        pass
    assert replies.late_failures == 2
    assert sum(one.failure is not None for one in replies.all()) == 2
    assert replies.late_failures == 2
    # The middle that was left out may have why it is whole.
    odd = reply(*(said("w") for _ in range(50)), REASON, *(said("w") for _ in range(50)))
    assert full(odd).failure is None
    replies = held(odd)
    replies.show()
    assert replies.late_failures == 0


class Rounds:
    """Counts rounds of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Rounds:
        self._task = asyncio.create_task(self._count())
        return self

    async def _count(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()


async def test_a_look_takes_one_reply_in_a_round_of_the_loop() -> None:
    job = ClientJob(
        endpoint=endpoint("http://127.0.0.1:1"),
        plan=closed_plan(1, requests=1),
        conversations=tuple(singles(1)),
    )
    client = ClientRun(job)
    in_rounds: list[int] = []
    async with Rounds() as rounds:

        def show() -> RequestRecord:
            in_rounds.append(rounds.count)
            return streamed((30, "text", "a"), tokens=1)

        client._runner.show = show  # type: ignore[method-assign]
        told = await client.progress(SHOWN_AT_ONCE)
    assert len(told.ttft_ms) == SHOWN_AT_ONCE
    assert len(set(in_rounds)) == SHOWN_AT_ONCE


async def test_the_text_of_a_long_turn_is_read_between_rounds(
    decoded: list[RawReply],
) -> None:
    count = 4000
    raw = reply(*(said(f"{at} ") for at in range(count)), REASON, END)
    replies = Replies("openai-chat", 0)
    async with Rounds() as rounds:
        text = await replies.add_turn(ASKED, raw, stream=True)
        assert rounds.count >= count // STEP_PIECES
    assert text == "".join(f"{at} " for at in range(count))
    assert decoded == []
    (record,) = replies.all()
    assert "".join(chunk.text for chunk in record.chunks) == text
    assert len(decoded) == 1


LONG = [said("word ") for _ in range(60)]


@pytest.mark.parametrize(
    "raw",
    [
        reply(*LONG, REASON, END),
        reply(*LONG, REASON),
        reply(*LONG, END),
        reply(*LONG),
        reply(*LONG, event(error="broke"), END),
        reply(*LONG, b"data: {nonsense\n\n", END),
        reply(*LONG, b"data: 3\n\n", END),
        # Half of a surrogate pair, which is JSON and no Unicode.
        reply(*LONG, b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', REASON, END),
        reply(*LONG, failure=Failure("timeout", "late")),
        reply(*LONG, REASON, failure=Failure("truncated", "cut")),
        reply(*LONG, END, failure=Failure("truncated", "cut")),
        reply(b"<html>" + b" " * 20_000),
        reply(said("short"), REASON, END),
    ],
)
async def test_a_turn_goes_on_where_its_record_has_not_failed(raw: RawReply) -> None:
    replies = Replies("openai-chat", 0)
    text = await replies.add_turn(ASKED, raw, stream=True)
    (record,) = replies.all()
    assert record == full(raw)
    assert (text is None) == (record.failure is not None)
    if text is not None:
        assert text == "".join(chunk.text for chunk in record.chunks if chunk.kind == "text")


@pytest.mark.every_cut
@unhurried
@given(st.lists(st.integers(1, 400), min_size=1, max_size=200))
def test_any_cutting_gives_the_same_text(sizes: list[int]) -> None:
    body = b"".join([*(said(f"wörd {at} ") for at in range(200)), REASON, END])
    pieces, start = [], 0
    for size in sizes:
        pieces.append(body[start : start + size])
        start += size
    replies = Replies("openai-chat", 0)
    raw = reply(*(piece for piece in (*pieces, body[start:]) if piece))
    text = asyncio.run(replies.add_turn(ASKED, raw, stream=True))
    assert text == "".join(f"wörd {at} " for at in range(200))


def test_decode_is_the_one_that_records_use() -> None:
    assert replies_module.decode is decode_module.decode
