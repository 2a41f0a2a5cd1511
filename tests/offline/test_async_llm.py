"""AsyncLLM: what LLM says, from many tasks, with cancelling, and the engine's end told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from headrace import LLM, AsyncLLM, SamplingParams
from headrace.engine.process import wire
from headrace.errors import ConfigError, EngineDeadError, FetchError, HeadraceError, RequestError
from headrace.offline.progress import GenerationProgress
from tests.tiny import write_tiny_gguf, write_tiny_hf
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
LONG = msgspec.structs.replace(GREEDY, max_tokens=400)
MEDIUM = msgspec.structs.replace(GREEDY, max_tokens=120)
SETTINGS: dict[str, Any] = {"backend": "reference", "num_gpu_blocks_override": 64}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hf(tmp_path_factory.mktemp("llm"), logit_scale=4.0)


@pytest.fixture(scope="module")
def alone(model: Path) -> LLM:
    return LLM(model, **SETTINGS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(model: Path) -> AsyncIterator[AsyncLLM]:
    async with await AsyncLLM.start(model, **SETTINGS) as llm:
        yield llm
    assert not llm.alive


@pytest_asyncio.fixture(loop_scope="module")
async def llm(started: AsyncLLM) -> AsyncIterator[AsyncLLM]:
    yield started
    await until(lambda: started.stats.num_running == 0, "idle")
    stats = started.stats
    assert (stats.failed_steps, stats.kv_accounting_errors, stats.blocks_owned) == (0, 0, 0)


async def test_results_are_those_of_llm_to_the_last_bit(llm: AsyncLLM, alone: LLM) -> None:
    hot = SamplingParams(temperature=1.5, seed=7, max_tokens=20, logprobs=2)
    each = [GREEDY, hot, msgspec.structs.replace(hot, seed=8, top_k=5), GREEDY, hot]
    prompts: list[str | list[int]] = ["alpha", "beta", "gamma, longer", [1, 2, 3], "alpha"]
    expected = [alone.generate([one], params)[0] for one, params in zip(prompts, each, strict=True)]
    results = await llm.generate(prompts, each)
    # How many tokens a prompt shares with one before it depends on which step each begins in.
    assert [replace(result, cached_tokens=0) for result in results] == [
        replace(result, cached_tokens=0) for result in expected
    ]
    for result in (expected[1], expected[2]):
        assert result.logprobs is not None
        assert len(result.logprobs) == len(result.token_ids)
    assert llm.sampling_defaults == alone.sampling_defaults == {}
    scored = msgspec.structs.replace(hot, prompt_logprobs=1)
    assert await llm.generate("scored", scored) == alone.generate("scored", scored)
    stop = expected[0].text[4:6]
    assert await llm.generate("alpha", GREEDY, stop=stop) == alone.generate(
        "alpha", GREEDY, stop=stop
    )
    assert await llm.generate([], GREEDY) == []


async def test_tasks_run_together_and_streams_add_up(llm: AsyncLLM, alone: LLM) -> None:
    async def streamed(prompt: str) -> str:
        return "".join([delta.text async for delta in llm.stream(prompt, MEDIUM)])

    prompts = [f"prompt {i}" for i in range(6)]
    tasks = [asyncio.create_task(streamed(prompt)) for prompt in prompts]
    await until(
        lambda: llm.stats.num_running > 1 or all(task.done() for task in tasks),
        "requests of several tasks that run together",
    )
    assert not all(task.done() for task in tasks), "requests of several tasks share steps"
    texts = await asyncio.gather(*tasks)
    assert texts == [result.text for result in alone.generate(prompts, MEDIUM)]


async def test_a_chat_is_a_generation_of_its_template(llm: AsyncLLM, alone: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert llm.has_chat_template
    assert llm.encode_chat(messages) == alone.encode_chat(messages)
    answer, same = await llm.chat(messages, GREEDY), alone.chat(messages, GREEDY)
    assert (answer.text, answer.token_ids) == (same.text, same.token_ids)
    two = await llm.chat(messages, SamplingParams(seed=3, max_tokens=12), n=2)
    assert two.choices[0].token_ids != two.choices[1].token_ids
    with pytest.raises(RequestError, match="role is 3"):
        await llm.chat([{"role": "user"}, {"role": 3}], GREEDY)


async def test_cancelling_a_task_cancels_all_its_requests(llm: AsyncLLM) -> None:
    before = llm.stats.generation_tokens
    task = asyncio.create_task(llm.generate(["a", "b", "c"], LONG, n=2))
    await until(lambda: llm.stats.num_running == 6, "all run")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: llm.stats.num_running == 0, "idle after cancel")
    assert llm.stats.generation_tokens - before < 6 * 400
    assert llm.stats.blocks_owned == 0


async def test_a_stream_left_early_and_a_stop_string_free_the_request(llm: AsyncLLM) -> None:
    before = llm.stats.generation_tokens
    async with aclosing(llm.stream("left", LONG)) as deltas:
        first = await anext(deltas)
        assert first.token_ids
    await until(lambda: llm.stats.num_running == 0, "idle after leaving")
    (whole,) = await llm.generate("stop", LONG)
    (cut,) = await llm.generate("stop", LONG, stop=whole.text[4:6])
    assert (cut.finish_reason, cut.text) == ("stop", whole.text[: len(cut.text)])
    await until(lambda: llm.stats.num_running == 0, "idle after a stop string")
    assert llm.stats.generation_tokens - before < 3 * 400


async def test_one_request_that_is_refused_leaves_nothing_running(llm: AsyncLLM) -> None:
    # What the engine says of its last steps may come behind the answers before this test.
    await asyncio.sleep(0.2)
    before = llm.stats.generation_tokens
    with pytest.raises(RequestError, match="512 tokens"):
        await llm.generate([[1, 2], [1] * 600], GREEDY)
    with pytest.raises(RequestError, match="priority"):
        await llm.generate("a", GREEDY, priority="high")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"priority is 1, but .*--scheduling-policy priority"):
        await llm.generate("a", GREEDY, priority=1)
    with pytest.raises(RequestError, match="n is 0; it must be 1 to 16384"):
        await llm.generate("a", GREEDY, n=0)
    assert llm.stats.num_running == llm.stats.num_waiting == 0
    assert llm.stats.generation_tokens == before


async def test_one_request_that_fails_takes_the_others_of_its_call_with_it(
    llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = llm.stats.generation_tokens
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 600)
    short = msgspec.structs.replace(LONG, max_tokens=200)
    with pytest.raises(RequestError, match="as a message to the engine"):
        await llm.generate([[1] * 5, [200] * 300], short)
    monkeypatch.undo()
    await until(lambda: llm.stats.num_running == 0, "idle after the failure")
    assert llm.stats.generation_tokens - before < 200


async def test_time_that_is_over_ends_a_request_and_keeps_its_text(
    llm: AsyncLLM, alone: LLM
) -> None:
    (whole,) = alone.generate("time", LONG)
    (cut,) = await llm.generate("time", LONG, timeout_s=0.05)
    assert cut.finish_reason == "timeout"
    assert whole.token_ids[: len(cut.token_ids)] == cut.token_ids
    assert len(cut.token_ids) < 400
    last = [delta async for delta in llm.stream("time", LONG, timeout_s=1e-9)][-1]
    assert last.finish_reason == "timeout"


async def test_priority_goes_to_the_engine(model: Path) -> None:
    settings = {**SETTINGS, "scheduling_policy": "priority", "max_num_seqs": 1}
    async with await AsyncLLM.start(model, **settings) as llm:
        ended: list[str] = []

        async def one(name: str, priority: int) -> None:
            await llm.generate(name, MEDIUM, priority=priority)
            ended.append(name)

        first = asyncio.create_task(one("first", 0))
        await until(lambda: llm.stats.num_running == 1, "the first runs")
        rest = [asyncio.create_task(one(name, at)) for name, at in (("later", 2), ("sooner", 1))]
        await asyncio.gather(first, *rest)
        assert ended == ["first", "sooner", "later"]


async def test_progress_is_told_of_every_request(llm: AsyncLLM) -> None:
    told: list[GenerationProgress] = []
    await llm.generate(["aa", "bb"], GREEDY, n=2, progress=told.append)
    last = told[-1]
    assert (last.num_requests, last.num_finished, last.output_tokens) == (4, 4, 48)
    assert last.prompt_tokens == 8


async def test_the_end_of_the_engine_is_told(model: Path) -> None:
    llm = await AsyncLLM.start(model, **SETTINGS)
    try:
        task = asyncio.create_task(llm.generate(["a", "b"], LONG))
        await until(lambda: llm.stats.generation_tokens > 0, "first tokens")
        os.kill(llm._engine.pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            await asyncio.wait_for(task, PATIENCE_S)
        assert not llm.alive
        with pytest.raises(EngineDeadError):
            await llm.generate("a", GREEDY)
    finally:
        await llm.close()
    await llm.close()


async def test_what_cannot_be_loaded_is_said(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"AsyncLLM.start\(block_size=17\)"):
        await AsyncLLM.start("somewhere", block_size=17)
    with pytest.raises(FetchError, match="no-such-model"):
        await AsyncLLM.start("no-such-model")
    with pytest.raises(HeadraceError, match=r"512 tokens.*choose 1 to 512"):
        await AsyncLLM.start(model, **{**SETTINGS, "max_model_len": 513})
    with pytest.raises(HeadraceError, match="--max-model-len 32 "):
        settings = {**SETTINGS, "num_gpu_blocks_override": 1, "max_model_len": 400}
        await AsyncLLM.start(write_tiny_gguf(tmp_path), **settings)


async def test_loading_can_be_followed_and_given_up(model: Path) -> None:
    phases: list[str] = []
    starting = asyncio.create_task(
        AsyncLLM.start(model, on_loading=lambda at: phases.append(at.phase), **SETTINGS)
    )
    await until(lambda: bool(phases) or starting.done(), "a phase")
    if not starting.done():
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    else:
        await starting.result().close()
