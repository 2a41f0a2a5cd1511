"""Which requests are kept, and what of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.terms import DataPolicy
from headrace.gateway.building.dialects import client_sides
from headrace.gateway.request_log.filters import Page, RecordFilter
from headrace.gateway.request_log.line import Line
from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.request_log.recording_sink import RecordingSink
from headrace.gateway.request_log.visit import RequestLogging, is_sampled
from headrace.gateway.serving.incoming import ClientGoneError, Incoming
from headrace.gateway.settings.request_log import RequestLogSettings
from headrace.protocol.json_object import JsonObject
from tests.gateway.ledger.entries import entry


class Log:
    def __init__(self) -> None:
        self.lines: list[Line] = []

    def take(self, line: Line) -> None:
        self.lines.append(line)

    async def newest(self, wanted: RecordFilter) -> Page:
        raise NotImplementedError

    async def find(self, request_id: str) -> LogRecord | None:
        raise NotImplementedError


class Client:
    """Takes so many pieces."""

    def __init__(self, most: int = 1000) -> None:
        self.left = most

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        pass

    async def write(self, piece: bytes) -> None:
        if not self.left:
            raise ClientGoneError
        self.left -= 1

    async def last(self, piece: bytes) -> None:
        await self.write(piece)

    async def end(self) -> None:
        pass


def incoming(
    caller: Caller | None = None, body: bytes = b'{"model":"chat"}', **more: Any
) -> Incoming:
    given: dict[str, Any] = {
        "id": "req-1",
        "side": client_sides()["openai-chat"],
        "path": "/v1/chat/completions",
        "headers": {},
        "model": "chat",
        "stream": False,
        "received_ns": 0,
    }
    return Incoming(**{**given, **more}, body=JsonObject.read(body), caller=caller)


def line_of(one: Incoming, outcome: str = "answered", **settings: Any) -> Line | None:
    """What is kept of it; None if nothing is."""
    log = Log()
    own = msgspec.convert({"enabled": True, **settings}, RequestLogSettings)
    visit = RequestLogging(own, log).visit(one, Client())
    if visit is None:
        return None
    visit.ended(entry(outcome=outcome))
    (line,) = log.lines
    return line


MINE = Caller(key_id="k-mine", team="search")


@pytest.mark.parametrize(
    ("settings", "caller", "kept"),
    [
        ({}, None, True),
        ({}, MINE, True),
        ({"keys": ["k-*"]}, MINE, True),
        ({"keys": ["other"]}, MINE, False),
        ({"keys": ["other"], "teams": ["sea*"]}, MINE, True),
        ({"keys": [], "teams": ["x"]}, MINE, False),
        ({"teams": ["*"]}, None, False),
        ({"keys": []}, MINE, False),
        ({"models": ["ch*"]}, None, True),
        ({"models": ["gpt-*"]}, None, False),
        ({"sample": 0.0}, None, False),
    ],
)
def test_the_choice(settings: dict[str, Any], caller: Caller | None, kept: bool) -> None:
    assert (line_of(incoming(caller), **settings) is not None) == kept


def test_a_key_without_retention_leaves_no_words() -> None:
    caller = Caller(key_id="k", data_policy=DataPolicy(zero_retention=True))
    line = line_of(incoming(caller))
    assert line is not None and line.request is None and line.reply is None
    assert line.without_bodies == "zero_retention"


def test_a_wish_that_cannot_be_read_is_taken_for_one() -> None:
    line = line_of(incoming(body=b'{"model":"chat","provider":{"zdr":"\xff"}}'))
    assert line is not None and line.without_bodies == "zero_retention"


@pytest.mark.parametrize(
    ("bodies", "outcome", "without"),
    [
        ("all", "answered", ""),
        ("none", "failed", "settings"),
        ("errors", "answered", "settings"),
        ("errors", "cut", ""),
        ("errors", "client_gone", ""),
    ],
)
def test_whose_bodies(bodies: str, outcome: str, without: str) -> None:
    line = line_of(incoming(), outcome, bodies=bodies)
    assert line is not None and line.without_bodies == without
    assert (line.request is None) == bool(without)


def test_a_sample_is_a_share_and_always_the_same() -> None:
    ids = [f"req-{number}" for number in range(10_000)]
    taken = {one for one in ids if is_sampled(one, 0.1)}
    assert 850 < len(taken) < 1150
    assert taken == {one for one in ids if is_sampled(one, 0.1)}
    assert taken < {one for one in ids if is_sampled(one, 0.2)}, "more keeps what less kept"
    assert all(is_sampled(one, 1.0) for one in ids)


async def test_what_a_client_took_is_heard_and_no_more_than_may_be_kept() -> None:
    sink = RecordingSink(Client(most=3), 8)
    await sink.start(200, [])
    await sink.write(b"12345")
    await sink.write(b"")
    await sink.write(b"67890")
    with pytest.raises(ClientGoneError):
        await sink.last(b"gone")
    heard = sink.heard
    assert (b"".join(heard.pieces), heard.bytes, heard.cut) == (b"12345678", 10, True)


async def test_a_piece_is_heard_though_the_client_goes_with_it() -> None:
    class Goes(Client):
        async def write(self, piece: bytes) -> None:
            raise asyncio.CancelledError

    sink = RecordingSink(Goes(), 8)
    with pytest.raises(asyncio.CancelledError):
        await sink.write(b"abc")
    assert sink.heard == ([b"abc"], 3, False)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"store": "postgresql"}, "needs one"),
        ({"store": "postgresql", "url": "env:X", "path": "y"}, "only `store: sqlite` has a file"),
        ({"url": "env:X"}, "only `store: postgresql` has one"),
    ],
)
def test_settings_that_say_two_things(settings: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, msgspec.ValidationError), match=said):
        msgspec.convert(settings, RequestLogSettings)
