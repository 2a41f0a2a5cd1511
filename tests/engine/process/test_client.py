"""The engine process and its client: start, generate, cancel, die, and refuse."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.messages import Cancel, Output, Ping, Pong, Submit
from headrace.engine.params import SamplingParams
from headrace.engine.process import client as client_module
from headrace.engine.process import wire
from headrace.engine.process.client import EngineClient
from headrace.engine.process.output_buffer import OutputBuffer
from headrace.errors import EngineDeadError, HeadraceError, RequestError
from headrace.structured.grammar import Grammar
from tests.tiny import write_tiny_gguf
from tests.waiting import PATIENCE_S, children, cpu_s, runs, until, wait_until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model"))


def config_of(model: Path | str, **settings: object) -> EngineConfig:
    chosen: dict[str, object] = {
        "model": str(model), "backend": "reference", "num_gpu_blocks_override": 64, **settings,
    }  # fmt: skip
    return EngineConfig(**chosen)  # type: ignore[arg-type]


@pytest.fixture
async def client(model: Path) -> AsyncIterator[EngineClient]:
    client = await EngineClient.start(config_of(model))
    yield client
    stats = client.stats
    await client.close()
    assert (stats.failed_steps, stats.kv_accounting_errors) == (0, 0)


def request(name: str, length: int = 20, max_tokens: int = 8, **params: object) -> Submit:
    prompt = [(3 * i + len(name)) % 256 for i in range(length)]
    return Submit(
        name,
        prompt,
        SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **params),  # type: ignore[arg-type]
    )


async def read(client: EngineClient, submit: Submit) -> list[Output]:
    return [output async for output in client.generate(submit)]


async def test_streams_run_side_by_side_and_say_what_they_say_alone(client: EngineClient) -> None:
    alone = await read(client, request("alone"))
    assert [len(output.token_ids) for output in alone] == [1] * 8
    assert alone[-1].finish_reason == "length"
    names = [f"{i:05d}" for i in range(10)]  # as long as "alone", so the same prompt
    together = await asyncio.gather(*(read(client, request(name)) for name in names))
    tokens = [[token for output in each for token in output.token_ids] for each in together]
    assert tokens == [[token for output in alone for token in output.token_ids]] * 10
    assert client.alive
    info = client.info
    assert (info.num_blocks, info.backend, info.model_type) == (64, "reference", "llama")
    assert {"import", "open", "weights", "kv_cache", "warm_up"} <= set(info.phases_s)


async def test_stats_come_while_busy_and_when_idle_begins(client: EngineClient) -> None:
    await read(client, request("one"))
    await until(lambda: client.stats.num_running == 0 and client.stats.steps == 8, "idle stats")
    stats = client.stats
    assert stats.generation_tokens == 8
    assert stats.blocks_owned == 0
    assert stats.blocks_free + stats.blocks_cached == stats.blocks_total == 64


async def test_closing_a_stream_early_cancels_and_frees_the_id(client: EngineClient) -> None:
    stream = client.generate(request("left", max_tokens=400))
    assert (await anext(stream)).token_ids
    await stream.aclose()
    await until(lambda: "left" not in client._streams, "the engine's last word")
    await until(lambda: client.stats.num_running == 0, "idle after cancel")
    assert client.stats.blocks_owned == 0
    assert len(await read(client, request("left", max_tokens=3))) == 3


async def test_a_request_too_large_to_send_is_refused_and_leaves_nothing(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(wire, "MAX_FRAME_BYTES", 100)
        with pytest.raises(RequestError, match="limit is 100"):
            await read(client, request("large", 200))
    assert len(await read(client, request("large", 200))) == 8


async def test_cancelling_the_reading_task_cancels_the_request(client: EngineClient) -> None:
    task = asyncio.create_task(read(client, request("task", max_tokens=400)))
    await until(lambda: client.stats.generation_tokens > 0, "first tokens")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: client.stats.num_running == 0, "idle after cancel")
    assert client.stats.generation_tokens < 400


async def test_cancel_ends_the_stream_with_abort(client: EngineClient) -> None:
    outputs = []
    async for output in client.generate(request("abort", max_tokens=400)):
        outputs.append(output)
        client.cancel("abort")
    assert outputs[-1].finish_reason == "abort"
    client.cancel("abort")
    client.cancel("never heard of")
    assert client.alive


async def test_what_cannot_be_served_is_refused_before_it_is_sent(client: EngineClient) -> None:
    with pytest.raises(RequestError, match=r"512 tokens.*needs 520: 20 of prompt") as caught:
        client.generate(request("long", max_tokens=500))
    assert caught.value.code == "context_length_exceeded"
    first = client.generate(request("twice", max_tokens=400))
    await anext(first)
    with pytest.raises(RequestError, match=r"twice.*in use"):
        client.generate(request("twice"))
    await first.aclose()


async def test_a_stream_nobody_reads_is_never_submitted(client: EngineClient) -> None:
    stream = client.generate(request("unread"))
    await stream.aclose()
    outputs = await read(client, request("unread"))
    assert sum(len(output.token_ids) for output in outputs) == 8


async def test_a_killed_engine_tells_every_stream(client: EngineClient) -> None:
    streams = [client.generate(request(f"s{i}", max_tokens=400)) for i in range(3)]
    for stream in streams:
        await anext(stream)
    os.kill(client.pid, signal.SIGKILL)
    for stream in streams:
        with pytest.raises(EngineDeadError, match=r"exit code -9 \(SIGKILL\)"):
            async with asyncio.timeout(PATIENCE_S):
                async for _ in stream:
                    pass
    assert not client.alive
    assert client.exit_code == -signal.SIGKILL
    with pytest.raises(EngineDeadError):
        client.generate(request("late"))
    client.cancel("s0")


async def test_sigint_is_ignored_and_sigterm_ends(client: EngineClient) -> None:
    os.kill(client.pid, signal.SIGINT)
    assert len(await read(client, request("after"))) == 8
    os.kill(client.pid, signal.SIGTERM)
    await until(lambda: client.exit_code is not None, "exit code")
    assert client.exit_code == -signal.SIGTERM


async def test_messages_that_cannot_be_read_harm_only_themselves(client: EngineClient) -> None:
    transport = client._transport
    assert transport is not None
    transport.write(wire._frame(b"\xc1 not msgpack"))
    transport.write(wire._frame(b""))
    transport.write(wire._frame(b"\x81\xa4type\xa1\xff"))
    transport.write(wire._frame(wire._encoder.encode({"type": "Nonsense", "x": [1, 2]})))
    transport.write(wire._frame(wire._encoder.encode([1, 2, 3])))
    bad = {"type": "Submit", "request_id": "bad", "prompt_token_ids": "text", "params": {}}
    unread = OutputBuffer()
    client._streams["bad"] = client_module._Stream(unread)
    transport.write(wire._frame(wire._encoder.encode(bad)))
    async with asyncio.timeout(PATIENCE_S):
        refused = await unread.take()
    assert refused is not None
    assert refused.finish_reason == "error"
    assert "prompt_token_ids" in (refused.error or "")
    transport.write(wire.to_core(Cancel("unknown")))
    transport.write(wire.to_core(request("unchecked", length=1000)))
    assert len(await read(client, request("good"))) == 8


async def test_start_fails_with_the_engines_own_words(tmp_path: Path, model: Path) -> None:
    with pytest.raises(HeadraceError, match="nothing-here"):
        await EngineClient.start(config_of(tmp_path / "nothing-here"))
    with pytest.raises(HeadraceError, match=r"--max-model-len is 300.*--max-model-len 128"):
        await EngineClient.start(config_of(model, max_model_len=300, num_gpu_blocks_override=4))


async def test_a_cancelled_start_leaves_no_process(model: Path) -> None:
    before = children()
    task = asyncio.create_task(EngineClient.start(config_of(model)))
    await until(lambda: children() - before, "an engine process")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not children() - before


def test_it_runs_on_uvloop_as_well(model: Path) -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

    async def main() -> tuple[int, int | None]:
        client = await EngineClient.start(config_of(model))
        outputs = await read(client, request("uv"))
        await client.close()
        return len(outputs), client.exit_code

    assert uvloop.run(main()) == (8, 0)


async def test_close_ends_streams_and_process(model: Path) -> None:
    client = await EngineClient.start(config_of(model))
    stream = client.generate(request("open", max_tokens=400))
    await anext(stream)
    await client.close()
    await client.close()
    with pytest.raises(EngineDeadError, match="closed"):
        async for _ in stream:
            pass
    assert client.exit_code == 0
    assert not client.alive


async def test_idle_takes_no_cpu(client: EngineClient) -> None:
    await read(client, request("warm"))
    await until(lambda: client.stats.num_running == 0, "its end")
    before_s = cpu_s(client.pid)
    await asyncio.sleep(0.5)  # the span in which its CPU time is measured
    assert cpu_s(client.pid) - before_s <= 0.02


def test_the_engine_ends_with_its_parent(model: Path) -> None:
    program = (
        "import asyncio, os, sys, msgspec\n"
        "from headrace.config.settings import EngineConfig\n"
        "from headrace.engine.process.client import EngineClient\n"
        "async def main():\n"
        "    config = msgspec.json.decode(sys.argv[1], type=EngineConfig)\n"
        "    client = await EngineClient.start(config)\n"
        "    print(client.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    text = msgspec.json.encode(config_of(model)).decode()
    with subprocess.Popen(
        [sys.executable, "-c", program, text], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        assert Path(f"/proc/{engine}").exists()
        parent.kill()
        parent.wait()
    wait_until(lambda: not runs(engine), "an end of the engine, which outlives its parent")


async def test_the_id_of_a_stream_that_was_closed_is_taken_until_the_engines_last_word(
    client: EngineClient,
) -> None:
    long = request("long", max_tokens=400)
    stream = client.generate(long)
    await anext(stream)
    await stream.aclose()
    with pytest.raises(RequestError, match="'long' is in use"):
        client.generate(long)
    await until(lambda: "long" not in client._streams, "the last word")
    again = await read(client, request("long", max_tokens=3))
    assert again[-1].finish_reason == "length", "the word of the one before it is not its own"


async def test_closing_a_stream_late_leaves_the_next_of_its_id_alone(client: EngineClient) -> None:
    late = client.generate(request("a", max_tokens=2))
    await anext(late)
    await until(lambda: "a" not in client._streams, "its end")
    stream = client.generate(request("a", max_tokens=300))
    first = await anext(stream)
    await late.aclose()
    rest = [output async for output in stream]
    assert rest[-1].finish_reason == "length"
    assert sum(len(output.token_ids) for output in [first, *rest]) == 300


async def test_only_what_shows_that_the_loop_turns_is_a_sign_of_life(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = client.heartbeats
    client._receive(client.stats)
    assert client.heartbeats == before, "figures of no further step"
    client._receive(msgspec.structs.replace(client.stats, steps=client.stats.steps + 1))
    assert client.heartbeats == before + 1
    sent: list[object] = []
    monkeypatch.setattr(client, "_send", sent.append)
    client.ping()
    client.ping()
    assert [type(each) for each in sent] == [Ping], "one at a time, or they would pile up"
    client._receive(Pong(1))
    client.ping()
    assert len(sent) == 2
    monkeypatch.undo()


async def test_the_engine_is_not_given_the_keys(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEADRACE_API_KEY", "HEADRACE_ADMIN_API_KEY"):
        monkeypatch.setenv(name, "sk-secret")
    client = await EngineClient.start(config_of(model))
    try:
        assert b"sk-secret" not in Path(f"/proc/{client.pid}/environ").read_bytes()
    finally:
        await client.close()


async def test_a_grammar_holds_in_the_engines_process_and_a_bad_one_ends_alone(
    client: EngineClient,
) -> None:
    good = Grammar("json_schema", '{"type": "array", "items": {"enum": [1, "é"]}, "maxItems": 3}')
    bad = Grammar("lark", "start: unknown")
    outputs, refused, free = await asyncio.gather(
        read(client, request("good", max_tokens=40, grammar=good)),
        read(client, request("bad", grammar=bad)),
        read(client, request("free")),
    )
    ids = [token_id for output in outputs for token_id in output.token_ids]
    assert set(json.loads(bytes(ids))) <= {1, "é"}
    assert (outputs[-1].finish_reason, outputs[-1].ends_with_text) == ("stop", True)
    assert refused[-1].finish_reason == "error" and "unknown" in str(refused[-1].error)
    assert len(free) == 8
