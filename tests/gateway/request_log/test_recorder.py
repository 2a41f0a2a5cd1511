"""From a line to a record: streams cut anywhere, and what nobody can read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.building.request_log import sides_of
from headrace.gateway.request_log.assembling import Assembling
from headrace.gateway.request_log.line import Heard, Line
from headrace.gateway.request_log.recorder import Recorder
from headrace.gateway.request_log.redaction import Redaction
from tests.gateway.openai_provider import DONE, chunk, usage_chunk
from tests.gateway.request_log.parts import line

ADDRESSES = ("bob@example.com", "x@y.example")
STREAM = b"".join(
    [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": one}) for one in ("ask bo", "b@exam", "ple.com or x", "@y.example")),
        chunk({}, "stop"),
        usage_chunk(),
        DONE,
    ]
)


def recorder(*kinds: Any, most: int = 10_000) -> Recorder:
    return Recorder(Redaction(kinds), most, Assembling(sides_of), lambda: "0" * 16)


def streamed(heard: Heard, **more: Any) -> Line:
    return line(1, b'{"model":"chat","stream":true}', stream=True, **more)._replace(reply=heard)


@pytest.mark.parametrize("cut", range(0, len(STREAM) + 1, 7))
def test_a_stream_that_was_cut_anywhere(cut: int) -> None:
    pieces = [STREAM[:cut][at : at + 50] for at in range(0, cut, 50)]
    found = recorder("email").record(streamed(Heard(pieces, len(STREAM), cut < len(STREAM))))
    assert found.reply is not None and found.reply.assembled and found.without_bodies == ""
    assert found.reply.cut == (cut < len(STREAM)) and found.reply.bytes == len(STREAM)
    assert "bob@example.com" not in found.reply.text and "x@y.example" not in found.reply.text
    if found.reply.text:
        said = json.loads(found.reply.text)["choices"][0]["message"]["content"] or ""
        for address in ADDRESSES:
            said = said.replace("[EMAIL]", address, 1)
        assert "ask {} or {}".format(*ADDRESSES).startswith(said)


def test_pieces_that_nobody_reads_are_kept_where_nothing_is_looked_for() -> None:
    heard = Heard([b"data: ", b"x\n\n"], 9, False)
    told = streamed(heard, dialect="of nobody")
    raw = recorder().record(told)
    assert raw.reply is not None and raw.reply.text == "data: x\n\n" and not raw.reply.assembled
    looked_through = recorder("email").record(told)
    assert looked_through.reply is None and looked_through.without_bodies == "unreadable"
    assert looked_through.request is not None


def test_nothing_came() -> None:
    found = recorder("email").record(streamed(Heard([], 0, False), outcome="failed", status=502))
    assert found.reply is None and found.without_bodies == ""


def test_a_body_is_cut_between_characters() -> None:
    body = json.dumps({"a": "ü" * 2000}, ensure_ascii=False).encode()
    found = recorder(most=1024).record(line(1, body))
    assert found.request is not None and found.request.cut
    assert 1020 < len(found.request.text.encode()) <= 1024
    assert found.request.text.endswith("ü") and found.request.bytes == len(body)


def test_what_is_found_lies_before_the_cut() -> None:
    body = json.dumps({"a": "x" * 1000 + " bob@example.com"}).encode()
    found = recorder("email", most=1020).record(line(1, body))
    assert found.request is not None and "bob" not in found.request.text


def test_words_in_other_places_are_looked_through() -> None:
    told = line(1, error="no bob@example.com here")._replace(session="ann@example.com")
    found = recorder("email").record(told)
    assert found.error == "no [EMAIL] here" and found.session == "[EMAIL]"
