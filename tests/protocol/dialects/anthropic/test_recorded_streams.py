"""Recorded streams, read, cut and written again."""

from __future__ import annotations

import msgspec
import pytest

from headrace.protocol.dialects.anthropic import CLIENT, PROVIDER
from headrace.protocol.neutral.collect import collected
from tests.protocol.dialects.anthropic.recorded import assembled, plain, streams
from tests.protocol.dialects.anthropic.test_recorded_replies import CALL, check_against_raw
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings")


def test_recorded_streams_say_what_their_events_say() -> None:
    found = streams()
    for exchange in found:
        events = read_stream(PROVIDER.stream_reader(CALL), exchange.body)
        assert_grammar(events)
        check_against_raw(collected("anthropic", events), assembled(exchange.body))
    assert len(found) >= 15


def test_recorded_streams_come_out_as_they_came() -> None:
    for exchange in streams():
        events = read_stream(PROVIDER.stream_reader(CALL), exchange.body)
        writer = CLIENT.stream_writer(CALL)
        stream = b"".join(writer.write(event) for event in events)
        raw, written = assembled(exchange.body), assembled(stream)
        raw["usage"] = written["usage"] | raw["usage"]
        assert plain(written) == plain(raw), exchange.at
        again = read_stream(PROVIDER.stream_reader(CALL), stream)
        assert collected("anthropic", again) == collected("anthropic", events), exchange.at


def test_streams_and_replies_agree() -> None:
    """The whole message that a stream tells, read as a reply, is what the stream's events are."""
    for exchange in streams():
        events = read_stream(PROVIDER.stream_reader(CALL), exchange.body)
        streamed = collected("anthropic", events)
        whole = PROVIDER.read_reply(msgspec.json.encode(assembled(exchange.body)))
        assert streamed.usage == whole.usage
        assert streamed.service_tier == whole.service_tier
        assert streamed.choices[0].finish == whole.choices[0].finish
        assert streamed.choices[0].extra == whole.choices[0].extra
        assert streamed.extra == whole.extra
