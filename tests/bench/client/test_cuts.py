"""Recorded streams of providers, cut in every way: the same events, each at its piece's time."""

from __future__ import annotations

import io
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.record import Chunk, RequestRecord
from tests.bench.client.wire import MS, QUICK, raw_reply, record_of

# Of long streams the first and last events are cut everywhere: those between are like each other.
EDGE_EVENTS = 3

OLLAMA = (
    '{"model":"m","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}\n'
    '{"model":"m","message":{"role":"assistant","content":"Grüße 🌊"},"done":false}\r\n\n'
    '{"model":"m","message":{"role":"assistant","content":""},"done":true,"eval_count":3}\n'
).encode()
AWKWARD = (
    '\ufeff: comment\r\n\r\ndata: {"choices":[{"delta":{"role":"assistant"}}]}\r\r'
    'id: 3\ndata: {"choices":\ndata: [{"delta":{"content":"Grüße 🌊"}}]}\n\n: keep-alive\n\n'
    'data:{"choices":[{"delta":{},"finish_reason":"stop"}]}\r\n\r\ndata: [DONE]\n\n'
).encode()


def body_of(text: str, number: int = -1) -> bytes:
    """The body of a recorded reply in a cassette, whichever of the two forms it has."""
    recorded: dict[str, Any] = yaml.safe_load(text)
    reply = recorded["interactions"][number]["response"]["body"]
    body = reply["string"] if isinstance(reply, dict) else reply
    return body if isinstance(body, bytes) else str(body).encode()


def events(record: RequestRecord) -> list[tuple[object, ...]]:
    return [(chunk.kind, chunk.text, chunk.stamped_ns, chunk.tokens) for chunk in record.chunks]


def edges(body: bytes) -> bytes:
    """The stream without its middle."""
    events = body.split(b"\n\n")
    if len(events) <= 2 * EDGE_EVENTS + 2:
        return body
    return b"\n\n".join(events[:EDGE_EVENTS] + events[-EDGE_EVENTS - 1 :])


def check_cuts(body: bytes, kind: str, least_content: int) -> None:
    """Whole and byte by byte; then its edges, cut in two at every place."""
    check_bytes(body, kind, least_content)
    body = edges(body)
    completed = check_bytes(body, kind, 0)
    whole = record_of(raw_reply(body), kind)
    for cut in range(1, len(body)):
        halves = record_of(raw_reply((1, body[:cut]), (2, body[cut:])), kind)
        assert events(halves) == events(whole)
        assert [chunk.at_ns for chunk in halves.chunks] == [
            1 if at <= cut else 2 for at in completed
        ]
        assert (halves.usage, halves.finish_reason) == (whole.usage, whole.finish_reason)
        first = record_of(raw_reply((1, body[:cut])), kind)
        assert events(first) == events(whole)[: len(first.chunks)]


def check_bytes(body: bytes, kind: str, least_content: int) -> list[int]:
    """Whole and byte by byte; of each chunk, how many bytes completed it."""
    whole = record_of(raw_reply(body), kind)
    assert whole.failure is None
    assert len(whole.content) >= least_content
    single = record_of(raw_reply(*(body[at : at + 1] for at in range(len(body)))), kind)
    assert events(single) == events(whole)
    assert (single.usage, single.finish_reason) == (whole.usage, whole.finish_reason)
    # Byte at - 1 comes at `at` ms.
    completed = [chunk.at_ns // MS for chunk in single.chunks]
    assert completed == sorted(completed)
    return completed


def test_ollama_s_lines() -> None:
    check_cuts(OLLAMA, "ollama", 2)


def test_every_kind_of_line_end() -> None:
    check_cuts(AWKWARD, "openai-chat", 1)


@pytest.mark.parametrize(
    ("name", "kind", "least"),
    [
        ("chat-streaming", "openai-chat", 8),
        ("chat-streaming-detailed-usage", "openai-chat", 0),
        ("completion-streaming-usage", "openai-completions", 20),
    ],
)
def test_openai_s_streams(shared_assets: Path, name: str, kind: str, least: int) -> None:
    path = shared_assets / "cassettes" / "envoy-ai-gateway" / f"{name}.yaml"
    check_cuts(body_of(path.read_text(encoding="utf-8")), kind, least)


def test_anthropic_s_stream(shared_assets: Path) -> None:
    name = "./tests/models/cassettes/test_anthropic/test_anthropic_model_thinking_part_stream.yaml"
    with tarfile.open(shared_assets / "cassettes" / "pydantic-ai.tar.gz") as archive:
        member = archive.extractfile(name)
        assert member is not None
        text = io.TextIOWrapper(member, encoding="utf-8").read()
    check_cuts(body_of(text), "anthropic-messages", 20)


@pytest.mark.parametrize(
    ("name", "kind", "complete"),
    [("turn1", "text", True), ("scenario3_reasoning", "reasoning", False)],
)
def test_streams_of_another_server(
    shared_assets: Path, name: str, kind: str, complete: bool
) -> None:
    """One of them was recorded without its end, and is known by that."""
    path = shared_assets / "cassettes" / "openwebui" / f"{name}_chunks.txt"
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    record = record_of(raw_reply(b"".join(b"data: %b\n\n" % line for line in lines)))
    assert kind in {chunk.kind for chunk in record.content}
    assert len(record.chunks) == len([line for line in lines if line != b"[DONE]"])
    assert (record.failure is None) == complete
    assert (record.finish_reason is not None) == complete


@given(cuts=st.lists(st.integers(1, len(AWKWARD) - 1), max_size=20))
@settings(max_examples=50)
def test_any_cuts(cuts: list[int]) -> None:
    places = [0, *sorted(set(cuts)), len(AWKWARD)]
    pieces = [AWKWARD[a:b] for a, b in pairwise(places)]
    assert events(record_of(raw_reply(*pieces))) == events(record_of(raw_reply(AWKWARD)))


async def test_the_mock_s_own_stream() -> None:
    from headrace.bench.client.endpoints import Endpoint, build_request
    from headrace.bench.client.prompt import Prompt
    from tests.bench.client.wire import client_of

    async with MockEndpoint(MockSettings(reasoning_tokens=1, **QUICK)) as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m", continuous_usage=True)
        request = build_request(at, Prompt(text="a", max_tokens=4))
        client = client_of(request)
        raw = await client.send(request)
        await client.close()
    check_cuts(raw.body, "openai-chat", 4)
    chunks = record_of(raw_reply(raw.body)).chunks
    assert [chunk.tokens for chunk in chunks] == [None, 1, 1, 1, 1, None, None]
    assert all(isinstance(chunk, Chunk) and chunk.stamped_ns for chunk in chunks)
