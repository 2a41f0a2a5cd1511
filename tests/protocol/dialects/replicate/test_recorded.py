"""Recorded exchanges with Replicate."""

from __future__ import annotations

import json

import pytest

from headrace.protocol.dialects.replicate import PROVIDER
from headrace.protocol.dialects.replicate.prediction import read_prediction
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import ReplyEnd
from headrace.protocol.neutral.part import Text
from tests.protocol.dialects.replicate.samples import call
from tests.protocol.neutral.cassettes import Exchange, exchanges
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings")


def recorded() -> list[Exchange]:
    found = exchanges("openllmetry.tar.gz", "opentelemetry-instrumentation-replicate")
    return list({(one.path, one.request, one.body): one for one in found}.values())


def test_a_stream_from_its_creation_to_its_end() -> None:
    created = next(one for one in recorded() if one.path.endswith("chat/predictions"))
    streamed = next(one for one in recorded() if one.streamed)
    told = json.loads(created.request)
    asked = call(told["input"]["prompt"], stream=True)
    steps = PROVIDER.steps(asked, "meta/llama-2-70b-chat")
    ask = steps.next_request()
    assert ask is not None
    assert (ask.path, json.loads(ask.body)) == (created.path, told)
    assert steps.take(created.status, created.headers, created.body) == []
    ask = steps.next_request()
    assert ask is not None
    assert ask.url == json.loads(created.body)["urls"]["stream"]
    assert ask.url.endswith(streamed.path)
    events = steps.feed(streamed.body) + steps.end_of_body()
    gone = steps.take(404, {}, b"")
    assert isinstance(gone[-1], ReplyEnd)
    text = collected("replicate", events + gone).choices[0].parts
    # As its events say it: a line end stands for each further line of data.
    wanted = []
    for event in streamed.body.decode().split("\n\n"):
        lines = event.split("\n")
        if "event: output" in lines:
            wanted.append("\n".join(one[6:] for one in lines if one.startswith("data: ")))
    assert text == (Text(text="".join(wanted)),)
    assert "therapy?\n\nBecause it was feeling a little" in "".join(wanted)
    events = read_stream(PROVIDER.stream_reader(asked), streamed.body)
    assert_grammar(events)
    assert collected("replicate", events).choices[0].parts == text


def test_predictions_at_every_stage() -> None:
    bodies = [one.body for one in recorded() if "/predictions" in one.path]
    assert len(bodies) >= 5
    stages = set()
    for body in bodies:
        told = json.loads(body)
        prediction = read_prediction(body)
        assert (prediction.id, prediction.status) == (told["id"], told["status"])
        assert prediction.usage is None
        stages.add(prediction.status)
        if prediction.status == "succeeded":
            assert isinstance(told["output"], list)
            reply = PROVIDER.read_reply(body)
            assert reply.choices[0].parts == (Text(text="".join(told["output"])),)
    assert {"starting", "processing", "succeeded"} <= stages
