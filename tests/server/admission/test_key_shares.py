"""Several keys on one server: one that sends much does not make another wait for all of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from headrace.config import ServerConfig
from headrace.engine.messages import Output, Submit
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, output, says
from tests.server.serve_process import Process
from tests.waiting import wait_until

Start = Callable[..., Running]
CROWD, STRANGER = "sk-crowd-1", "sk-stranger-2"
SLOTS = 4
SHARED = ServerConfig(api_key=(CROWD, STRANGER))


@dataclass
class SlotEngine(MockEngine):
    """An engine of four slots that begins requests in the order in which they come, and ends none
    before `go_on` is set."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SLOTS))
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[str] = field(default_factory=list)
    """Their prompts."""

    async def generate(
        self, submit: Submit, *, on_started: Callable[[float], None] | None = None
    ) -> AsyncGenerator[Output, None]:
        self.submitted.append(submit)
        async with self.slots:
            assert on_started is not None
            on_started(0.25)
            self.begun.append(bytes(submit.prompt_token_ids).decode())
            async for part in self.reply(submit):
                yield part
                if part.finish_reason is None:
                    await self.go_on.wait()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def slots(server: Running) -> None:
    """Let the server count on an engine of four slots, as its own state does at the start."""
    admission = server.state.admission
    admission._slots = SLOTS
    if admission.turns is not None:
        admission.turns._slots, admission.turns._ahead = SLOTS, 1


async def two_tokens(submit: Submit) -> AsyncIterator[Output]:
    """One before the engine may go on, one after."""
    yield output(submit, [65])
    yield output(submit, [66], "length")


def begun_with_a_crowd(server: Running, engine: SlotEngine, **fields: object) -> list[str]:
    """Prompts in the order in which the engine began them: a crowd of four times four choices of
    one key, then a single request of another key. `fields` are the stranger's."""
    slots(server)
    admission = server.state.admission

    def num_there() -> int:
        return admission.num_queued + admission.num_running

    with ThreadPoolExecutor(8) as clients:

        def ask(key: str, prompt: str, **fields: object) -> Future[httpx.Response]:
            body = {"prompt": prompt, "max_tokens": 2, **fields}
            return clients.submit(server.post, "/v1/completions", body, headers=bearer(key))

        asked = [ask(CROWD, f"crowd {number}", n=4, stream=number % 2 == 0) for number in range(4)]
        wait_until(
            lambda: admission.num_queued + admission.num_running == 16, "16 requests are there"
        )
        asked.append(ask(STRANGER, "stranger", **fields))
        wait_until(
            lambda: admission.num_queued + admission.num_running == 17, "17 requests are there"
        )
        wait_until(lambda: len(engine.submitted) >= SLOTS + 2, "the engine has what it may have")
        server.call(engine.go_on.set)
        assert [reply.result(30).status_code for reply in asked] == [200] * 5
    wait_until(lambda: num_there() == 0, "0 requests are there")
    assert admission.num_queued_keys == 0
    assert len(engine.begun) == 17
    return engine.begun


def test_a_stranger_is_served_before_the_rest_of_a_crowd(start: Start) -> None:
    engine = SlotEngine(two_tokens)
    server = start(engine, config=SHARED)
    begun = begun_with_a_crowd(server, engine)
    assert begun.index("stranger") == SLOTS + 1, "after those that run and one that is next"
    turns = server.state.admission.turns
    assert turns is not None
    assert (turns.held("1"), turns.held("2")) == (0, 0)


def test_without_shares_it_is_the_order_of_arrival(start: Start) -> None:
    engine = SlotEngine(two_tokens)
    unshared = ServerConfig(api_key=(CROWD, STRANGER), enable_key_shares=False)
    begun = begun_with_a_crowd(start(engine, config=unshared), engine)
    assert begun.index("stranger") == 16


@pytest.mark.parametrize("keys", [(), (CROWD,), (CROWD, CROWD)])
def test_one_key_or_none_is_served_as_without_shares(start: Start, keys: tuple[str, ...]) -> None:
    server = start(MockEngine(says("abc")), config=ServerConfig(api_key=keys, admin_api_key="adm"))
    assert server.state.admission.turns is None


def test_the_wait_for_a_turn_is_part_of_the_time_in_the_queue(start: Start) -> None:
    engine = SlotEngine(two_tokens)
    server = start(engine, config=SHARED)
    slots(server)
    with ThreadPoolExecutor(1) as clients:
        body = {"prompt": "x", "max_tokens": 2, "n": 6, "return_metrics": True}
        asked = clients.submit(server.post, "/v1/completions", body, headers=bearer(CROWD))
        wait_until(lambda: len(engine.submitted) == SLOTS + 1, "the engine has what it may have")
        time.sleep(0.05)
        server.call(engine.go_on.set)
        waits_s = [choice["metrics"]["queue_s"] for choice in asked.result(30).json()["choices"]]
    # The engine says 0.25 s of each; one came to it only when another had ended.
    assert sorted(waits_s)[:5] == [0.25] * 5
    assert sorted(waits_s)[5] >= 0.25 + 0.04


def test_time_passes_while_a_request_waits_for_a_turn(start: Start) -> None:
    engine = SlotEngine(two_tokens)
    server = start(engine, config=SHARED)
    slots(server)
    body = {"prompt": "x", "max_tokens": 2, "n": 6}
    with ThreadPoolExecutor(2) as clients:
        asked = clients.submit(server.post, "/v1/completions", body, headers=bearer(CROWD))
        wait_until(lambda: len(engine.submitted) == SLOTS + 1, "the engine has what it may have")
        late = clients.submit(
            server.post, "/v1/completions", {"prompt": "late", "timeout_s": 0.05},
            headers=bearer(CROWD),
        )  # fmt: skip
        # It goes to the engine without a turn, which ends it as any whose time is over.
        wait_until(lambda: len(engine.submitted) == SLOTS + 2, "the engine has what it may have")
        told = engine.submitted[-1]
        assert bytes(told.prompt_token_ids) == b"late"
        assert 0 < told.timeout_s < 0.005  # of 0.05 s: a timer may come a little early
        server.call(engine.go_on.set)
        assert asked.result(30).status_code == late.result(30).status_code == 200
    assert server.state.admission.num_queued == server.state.admission.num_running == 0


def test_who_leaves_while_waiting_leaves_nothing_behind(start: Start) -> None:
    engine = SlotEngine(two_tokens)
    server = start(engine, config=SHARED)
    slots(server)
    body = {"prompt": "x", "max_tokens": 2, "n": 4}
    with ThreadPoolExecutor(1) as clients:
        asked = clients.submit(server.post, "/v1/completions", body, headers=bearer(CROWD))
        wait_until(lambda: len(engine.submitted) == SLOTS, "the engine has what it may have")
        for streamed in (False, True):
            with pytest.raises(httpx.TimeoutException):
                server.post(
                    "/v1/completions", {**body, "stream": streamed, "ignore_eos": True},
                    headers=bearer(CROWD), timeout=0.2,
                )  # fmt: skip
            wait_until(lambda: server.state.admission.num_queued == 0, "they have left")
        server.call(engine.go_on.set)
        assert asked.result(30).status_code == 200
    turns = server.state.admission.turns
    assert turns is not None
    wait_until(lambda: turns.held("1") == 0, "the engine has none")
    assert len(engine.begun) == SLOTS


@pytest.mark.process
def test_a_crowd_of_one_key_beside_another_key(
    model: Path, started: Callable[..., Process]
) -> None:
    server = started(model, api_key=(CROWD, STRANGER), max_num_seqs=4).wait_ready()
    ended: list[str] = []
    with httpx.Client(base_url=server.url, timeout=120, verify=False) as client:

        def ask(key: str, n: int, max_tokens: int) -> None:
            body = {"prompt": "x", "n": n, "max_tokens": max_tokens, "ignore_eos": True, "seed": 1}
            reply = client.post("/v1/completions", json=body, headers=bearer(key))
            assert reply.status_code == 200, reply.text
            ended.append(key)

        def queued() -> float:
            name = "headrace:admission_queued_requests "
            lines = client.get("/metrics", headers=bearer(CROWD)).text.splitlines()
            return float(next(line for line in lines if line.startswith(name)).split()[1])

        ask(STRANGER, 1, 1)
        with ThreadPoolExecutor(17) as clients:
            asked = [clients.submit(ask, CROWD, 4, 64) for _ in range(16)]
            wait_until(lambda: queued() >= 44, "the crowd waits")
            done = len(ended)
            asked.append(clients.submit(ask, STRANGER, 1, 64))
            for work in asked:
                work.result(120)
    before = ended.index(STRANGER, 1) - done
    assert before <= 4, f"{before} of at least 11 waiting calls were answered before one request"
