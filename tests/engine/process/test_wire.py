"""Frames at every split point, and frames that are too long."""

from __future__ import annotations

import msgspec
import pytest

from headrace.engine.messages import Cancel, Output, Shutdown, Stats, Submit, TokenLogprob
from headrace.engine.params import SamplingParams
from headrace.engine.process import wire
from headrace.errors import RequestError

TO_CORE = [
    Submit("a", [1, 2, 300000], SamplingParams(seed=-5, stop_token_ids=(7,), logprobs=0), "salt"),
    Cancel("a"),
    Shutdown(),
]
FROM_CORE = [
    Output("a", [5], [TokenLogprob(5, -0.25, 1, [(5, -0.25), (6, -3.5)])], "stop", stop_reason=7),
    Stats(num_running=3, miss_reasons={"empty": 1}),
]


def test_every_way_of_cutting_the_stream_gives_the_same_messages() -> None:
    data = b"".join(wire.to_core(message) for message in TO_CORE)
    for cut in range(len(data) + 1):
        reader = wire.FrameReader()
        payloads = reader.feed(data[:cut]) + reader.feed(data[cut:])
        assert [wire.decode_to_core(payload) for payload in payloads] == TO_CORE
    reader = wire.FrameReader()
    single = [payload for byte in data for payload in reader.feed(bytes([byte]))]
    assert [wire.decode_to_core(payload) for payload in single] == TO_CORE


def test_what_a_step_gave_is_one_frame() -> None:
    (frame,) = wire.from_core(FROM_CORE)  # type: ignore[arg-type]
    (payload,) = wire.FrameReader().feed(frame)
    assert wire.decode_from_core(payload) == FROM_CORE


def test_a_step_that_gave_too_much_for_a_frame_is_several() -> None:
    outputs = [Output(str(i), [i] * (40 * i)) for i in range(7)]
    frames = wire.from_core([*outputs], max_frame_bytes=600)
    assert len(frames) > 2
    assert all(len(frame) <= 4 + 600 for frame in frames)
    payloads = wire.FrameReader().feed(b"".join(frames))
    assert [one for each in payloads for one in wire.decode_from_core(each)] == outputs


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_a_frame_that_is_too_long_is_skipped_logged_and_the_next_is_read(
    chunk: int, caplog: pytest.LogCaptureFixture
) -> None:
    long = Submit("b", [1] * 500, SamplingParams())
    data = wire.to_core(Cancel("a")) + wire.to_core(long) + wire.to_core(Cancel("c"))
    reader = wire.FrameReader(max_frame_bytes=100)
    payloads = []
    for start in range(0, len(data), chunk):
        payloads += reader.feed(data[start : start + chunk])
    assert [wire.decode_to_core(payload) for payload in payloads] == [Cancel("a"), Cancel("c")]
    size = len(wire.to_core(long)) - 4
    assert caplog.messages == [f"a frame of {size} bytes was skipped; the limit is 100"]


def test_a_message_the_other_end_would_skip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Submit("b", [1] * 50, SamplingParams(), "salt")
    size = len(wire.to_core(one)) - 4
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", size)
    wire.to_core(one)
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", size - 1)
    with pytest.raises(RequestError, match=f"takes {size} bytes .* limit is {size - 1}") as caught:
        wire.to_core(one)
    assert caught.value.code == "request_too_large"


DEEP = b"\x91" * 6000 + b"\x01"


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xc1", b"\x93\x01", b"\x81\xa4type\xa4Nope", DEEP,
        b"\x82\xa4type\xa6Cancel\xa1x" + DEEP,
    ],
)  # fmt: skip
def test_payloads_that_are_no_message_raise_one_kind_of_error(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode_to_core(payload)
    with pytest.raises(msgspec.DecodeError):
        wire.decode_from_core(payload)
