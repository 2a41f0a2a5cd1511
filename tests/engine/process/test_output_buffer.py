"""What readers leave: every way of taking it gives the same tokens, and it has a bound."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from headrace.engine.messages import FinishReason, Output, TokenLogprob
from headrace.engine.process import client as client_module
from headrace.engine.process.client import EngineClient
from headrace.engine.process.output_buffer import SEPARATE, OutputBuffer
from tests.engine.process.test_client import config_of, request
from tests.tiny import write_tiny_gguf
from tests.waiting import until

NUM_OUTPUTS = 3 * SEPARATE


def outputs(reason: FinishReason) -> list[Output]:
    """A request's outputs: facts of the first token on the first, the reason on the last."""
    made = [
        Output("r", [i], logprobs=[TokenLogprob(i, -1.0, 1, [(i, -1.0)])], num_preemptions=i)
        for i in range(NUM_OUTPUTS)
    ]
    made[0] = Output(
        "r", [0], logprobs=made[0].logprobs, cached_tokens=5, queue_s=0.25, prefill_s=0.5,
        cache_miss="no_match at token 5",
    )  # fmt: skip
    return [*made, Output("r", [], finish_reason=reason, cached_tokens=5, error="damaged")]


@pytest.mark.parametrize("reason", ["length", "error"])
@pytest.mark.parametrize("waiting", [1, SEPARATE, SEPARATE + 1, NUM_OUTPUTS + 1])
async def test_nothing_is_lost_however_late_it_is_read(waiting: int, reason: FinishReason) -> None:
    unread = OutputBuffer()
    taken: list[Output] = []
    made = outputs(reason)
    for start in range(0, len(made), waiting):
        part = made[start : start + waiting]
        for output in part:
            unread.put(output)
        while unread.num_bytes:
            output = await unread.take()
            assert output is not None
            taken.append(output)
    assert [token for each in taken for token in each.token_ids] == list(range(NUM_OUTPUTS))
    assert [logprob.token_id for o in taken for logprob in o.logprobs or ()] == list(
        range(NUM_OUTPUTS)
    )
    assert (taken[0].cached_tokens, taken[0].queue_s, taken[0].prefill_s) == (5, 0.25, 0.5)
    assert taken[0].cache_miss == "no_match at token 5"
    assert [each.finish_reason for each in taken].count(reason) == 1
    assert taken[-1].finish_reason == reason
    if waiting <= SEPARATE:
        assert taken == made
    elif reason == "error":
        assert taken[-1] == made[-1]
    else:
        assert len(taken) < len(made)


async def test_log_probabilities_of_the_prompt_survive_joining_and_make_no_reader_slow() -> None:
    plain, asked = OutputBuffer(), OutputBuffer()
    of_prompt = [None, *(TokenLogprob(i, -1.0, 1, [(i, -1.0)] * 20) for i in range(99))]
    for unread, prompt_logprobs in ((plain, None), (asked, of_prompt)):
        unread.put(Output("r", [0], prompt_logprobs=prompt_logprobs))
        for i in range(1, NUM_OUTPUTS):
            unread.put(Output("r", [i]))
    assert asked.num_bytes == plain.num_bytes
    output = await asked.take()
    assert output is not None
    assert len(output.token_ids) == NUM_OUTPUTS
    assert output.prompt_logprobs == of_prompt
    assert asked.num_bytes == 0


async def test_a_reader_waits_for_news_and_learns_of_the_end() -> None:
    unread = OutputBuffer()
    reader = asyncio.create_task(unread.take())
    await asyncio.sleep(0)
    assert not reader.done()
    unread.put(Output("r", [7]))
    unread.close()
    async with asyncio.timeout(10):
        first = await reader
        assert first is not None
        assert first.token_ids == [7]
        assert await unread.take() is None


@pytest.mark.process
async def test_a_reader_too_far_behind_loses_its_request_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_module, "UNREAD_BYTES", 3000)
    client = await EngineClient.start(config_of(write_tiny_gguf(tmp_path)))
    try:
        slow = client.generate(request("slow", max_tokens=400))
        outputs = [await anext(slow)]  # its end already, where the engine was quick
        with caplog.at_level(logging.WARNING):
            await until(lambda: "slow" not in client._streams, "the engine's last word")
        await until(lambda: client.stats.num_running == 0, "idle after cancel")
        assert client.stats.generation_tokens < 400
        assert client.stats.blocks_owned == 0
        outputs += [output async for output in slow]
        assert len(outputs) <= 2, "what was not read is still there"
        last = outputs[-1]
        assert last.finish_reason == "error"
        assert "3000 bytes of output were not read in time" in (last.error or "")
        assert sum("slow is cancelled" in message for message in caplog.messages) == 1
        quick = [output async for output in client.generate(request("quick"))]
        assert sum(len(output.token_ids) for output in quick) == 8
    finally:
        await client.close()


@pytest.mark.process
async def test_what_is_large_by_itself_is_no_sign_of_a_slow_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "UNREAD_BYTES", 1000)
    client = await EngineClient.start(config_of(write_tiny_gguf(tmp_path)))
    try:
        # Two outputs: the second, which is the last, may come before the first was read.
        asked = request("asked", 60, max_tokens=2, prompt_logprobs=20, logprobs=20)
        outputs = [output async for output in client.generate(asked)]
        assert outputs[-1].finish_reason == "length"
        assert sum(len(output.token_ids) for output in outputs) == 2
        assert len(outputs[0].prompt_logprobs or ()) == 60
    finally:
        await client.close()
