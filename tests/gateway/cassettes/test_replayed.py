"""Recorded answers of real providers through a whole gateway to clients of every dialect.

What clients must read and what the bill must say is worked out from the raw recordings.
"""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.cassettes.heard import FINISHES, HEARD, asked
from tests.gateway.cassettes.playing import RATES, playing, wire
from tests.gateway.cassettes.recordings import VENDORS, Vendor, chosen
from tests.gateway.cassettes.told import Told
from tests.gateway.cassettes.told_by_vendor import told
from tests.gateway.harness import ask

pytestmark = pytest.mark.usefixtures("recordings")

MOST = 14
_WRITTEN = ("output_tokens", "reasoning_tokens", "output_audio_tokens")
_MODEL = re.compile(rb'"model":\s*"[^"]*"')
# Words of OpenRouter's that the gateway takes for itself.
_OURS = {"models", "provider", "route"}
# In names of recordings with tools of the vendor's own, which are billed beside tokens.
_WITH_TOOLS = ("web_search", "file_search", "native_tool", "built_in_tool", "raw_annotations")
_SAME_ID = {"x-request-id": "one"}
STREAMED = [one for one in VENDORS if one.name not in ("cerebras", "together")]


def sums(lines: dict[str, int]) -> tuple[int, int]:
    """All that was read, and all that was written."""
    wrote = sum(lines.get(one, 0) for one in _WRITTEN)
    return sum(lines.values()) - wrote - lines.get("input_audio_s", 0), wrote


def check_entry(entry: Entry, said: Told, at: str) -> None:
    """The line of the ledger: every line of the usage, their sums, the finish, the cost."""
    if said.failed:
        assert (entry.outcome, entry.status, bool(entry.error)) == ("cut", 200, True), at
        return
    assert (entry.outcome, entry.status, entry.error) == ("answered", 200, ""), at
    assert entry.finish == said.finish, at
    if said.usage is None:
        assert entry.usage_from == "estimated", at
        return
    assert entry.usage is not None, at
    counted = msgspec.structs.asdict(entry.usage)
    lines = {name: value for name, value in counted.items() if value}
    lines.pop("cost_nusd", None)
    has_more = lines.pop("is_incomplete", False)
    assert (entry.usage_from, lines) == ("provider", said.usage), at
    assert (entry.usage.prompt_tokens, entry.usage.completion_tokens) == sums(said.usage), at
    if said.cost_nusd is not None:
        assert entry.cost_nusd == said.cost_nusd, at
        return
    if has_more:
        assert entry.cost_nusd is None and any(one in at for one in _WITH_TOOLS), at
        return
    total = sum(RATES.get(name, 0) * value for name, value in said.usage.items())
    assert entry.cost_nusd == -(-total // 1_000_000), at


def check_heard(path: str, body: bytes, said: Told, at: str, *, stream: bool) -> None:
    """The answer, read as a client of this path reads it."""
    if said.failed:
        assert b'"error"' in body or b'"failed"' in body, at
        return
    heard = HEARD[path](body, stream)
    assert heard.text == said.text + said.refusal, at
    assert heard.calls == said.calls, at
    assert heard.thoughts == said.thoughts, at
    assert heard.finish == FINISHES[path].get(said.finish, said.finish), at
    if said.usage is not None:
        assert (heard.read, heard.wrote) == sums(said.usage), at
        if heard.cached is not None:
            assert heard.cached == said.usage.get("cache_read_tokens", 0), at


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("vendor", VENDORS, ids=lambda one: one.name)
async def test_every_dialect_hears_what_was_recorded(vendor: Vendor, stream: bool) -> None:
    async with playing(vendor) as player:
        for recording in chosen(vendor.name, stream=stream, most=MOST):
            player.recording = recording
            said = told(vendor.name, recording.exchange.body, stream=stream)
            for path in HEARD:
                at = f"{path} {recording.at}"
                answer = await ask(player.gateway.app, asked(path, stream=stream), path=path)
                if said.failed and not stream:
                    assert answer.status >= 400, at
                    continue
                assert answer.status == 200, (at, answer.body[:500])
                check_entry(player.entries[-1], said, at)
                if path == player.own_path:
                    assert answer.body == recording.exchange.body, at
                else:
                    check_heard(path, answer.body, said, at, stream=stream)


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda one: one.name)
async def test_whole_answers_to_clients_that_asked_for_a_stream(vendor: Vendor) -> None:
    """Some providers do not stream what they were asked to."""
    async with playing(vendor) as player:
        for recording in chosen(vendor.name, stream=False, most=5):
            player.recording = recording
            said = told(vendor.name, recording.exchange.body, stream=False)
            for path in HEARD:
                at = f"{path} {recording.at}"
                answer = await ask(player.gateway.app, asked(path, stream=True), path=path)
                if said.failed:
                    assert answer.status >= 400, at
                    continue
                assert answer.status == 200, (at, answer.body[:500])
                check_entry(player.entries[-1], said, at)
                check_heard(path, answer.body, said, at, stream=True)


@pytest.mark.parametrize("vendor", STREAMED, ids=lambda one: one.name)
async def test_how_a_stream_is_cut_changes_nothing(vendor: Vendor) -> None:
    """In one piece and in some; `test_every_cut` has those of one byte."""
    async with playing(vendor) as player:
        for recording in chosen(vendor.name, stream=True, most=3):
            player.recording = recording
            reply = wire(recording)
            head = reply.index(b"\r\n\r\n")
            spread = range(head, len(reply), max(1, (len(reply) - head) // 23))
            for path in HEARD:
                results = []
                for cuts in ((), (3, head - 5, *spread)):
                    player.cuts = cuts
                    answer = await ask(
                        player.gateway.app, asked(path, stream=True), path=path, headers=_SAME_ID
                    )
                    entry = player.entries[-1]
                    results.append((answer.body, entry.usage, entry.finish, entry.outcome))
                assert all(one == results[0] for one in results), f"{path} {recording.at}"


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda one: one.name)
async def test_requests_of_the_providers_own_dialect_are_passed_on(vendor: Vendor) -> None:
    """Recorded requests: no byte changes but those of the model's name."""
    seen = 0
    async with playing(vendor) as player:
        path = player.own_path
        if path is None:
            return
        for stream in (False, True):
            for recording in chosen(vendor.name, stream=stream, most=MOST):
                raw = recording.exchange.request
                if len(_MODEL.findall(raw)) != 1 or recording.asked.keys() & _OURS:
                    continue
                player.recording = recording
                ours = _MODEL.sub(b'"model" : "chat"', raw)
                answer = await ask(player.gateway.app, ours, path=path)
                if not stream and b'"error"' in recording.exchange.body:
                    continue
                assert answer.status == 200, (recording.at, answer.body[:300])
                sent = player.provider.requests[-1].partition(b"\r\n\r\n")[2]
                options = json.loads(sent).get("stream_options")
                if path == "/v1/chat/completions" and stream:
                    assert options["include_usage"] is True, recording.at
                if options == recording.asked.get("stream_options"):
                    assert sent == ours.replace(b'"chat"', b'"m"', 1), recording.at
                    assert answer.body == recording.exchange.body, recording.at
                else:
                    before, after = json.loads(ours), json.loads(sent)
                    assert after.pop("stream_options") and after.pop("model") == "m"
                    before.pop("stream_options", None)
                    assert after == {k: v for k, v in before.items() if k != "model"}
                    assert answer.body == without_usage(recording.exchange.body), recording.at
                seen += 1
    assert seen


def without_usage(stream: bytes) -> bytes:
    """Without the events that have the usage and nothing else."""
    end = b"\r\n\r\n" if b"\r\n\r\n" in stream else b"\n\n"
    kept = []
    for event in stream.split(end):
        data = event.partition(b"data:")[2].strip()
        value = json.loads(data) if data.startswith(b"{") else {}
        if value.get("choices") != [] or not value.get("usage"):
            kept.append(event)
    return end.join(kept)
