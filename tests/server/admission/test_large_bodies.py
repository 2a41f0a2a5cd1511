"""Large bodies: decoded one at a time, held to what the model can use, their memory trimmed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from headrace.protocol.body_bounds import DEFAULT_BOUNDS, TOO_COMPLEX
from headrace.protocol.request import parse_request
from headrace.server import call as call_module
from headrace.server import state as state_module
from headrace.server.admission import heap
from headrace.server.admission.heap import LARGE_BODY_BYTES, HeapTrim
from headrace.server.model import served
from headrace.server.state import ServerState
from tests.server.conftest import Running
from tests.server.mock_engine import VOCAB_SIZE, MockEngine, says
from tests.waiting import until, wait_until

Start = Callable[..., Running]

LARGE = {"prompt": "x", "user": "y" * state_module.PARSED_ON_LOOP_BYTES}


def test_large_bodies_are_decoded_one_at_a_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(MockEngine(says("ab")))
    release = threading.Event()
    decoded: list[str] = []

    def slow(body: bytes, *rest: Any) -> Any:
        decoded.append(threading.current_thread().name)
        if len(body) >= state_module.PARSED_ON_LOOP_BYTES:
            assert release.wait(20)
        return parse_request(body, *rest)

    monkeypatch.setattr(call_module, "parse_request", slow)
    with ThreadPoolExecutor(3) as clients:
        replies = [clients.submit(server.complete, **LARGE) for _ in range(3)]
        wait_until(lambda: decoded, "a large body is decoded")
        assert server.complete(prompt="small")["choices"][0]["text"] == "ab"
        assert len([name for name in decoded if name.startswith("headrace-json")]) == 1
        release.set()
        assert [reply.result(20)["choices"][0]["text"] for reply in replies] == ["ab"] * 3
    assert len(decoded) == 4


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"logit_bias": {str(number): 1 for number in range(70_000)}}, "names"),
        ({"prompt": [1] * (300_000 + 70_000)}, "values"),
        ({"stop": ["x"] * 370_000}, "values"),
        ({"prompt": [[1]] * 70_000}, "arrays and objects"),
    ],
)
def test_a_body_has_what_the_model_can_use(
    start: Start, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], what: str
) -> None:
    monkeypatch.setattr(served, "MIN_TEXT_TOKENS", 300_000)
    server = start(MockEngine(says("ab")))
    reply = server.post("/v1/completions", {"prompt": "x", **fields})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, TOO_COMPLEX)
    assert f" {what}; send several requests" in reply.json()["error"]["message"]
    bias = {str(token_id): 1 for token_id in range(VOCAB_SIZE)}
    allowed = list(range(VOCAB_SIZE))
    server.complete(logit_bias=bias, allowed_token_ids=allowed, user="y" * 2**17)
    longest = {"prompt": [1] * 300_000, "truncate_prompt_tokens": 9, "logit_bias": bias}
    assert server.complete(**longest)["usage"]["prompt_tokens"] == 9


def test_before_there_is_a_model_bounds_are_those_of_any() -> None:
    state = ServerState()
    assert state.body_bounds == DEFAULT_BOUNDS
    state.close()


class Recorder(ThreadPoolExecutor):
    """An executor that keeps what it was handed."""

    def __init__(self) -> None:
        super().__init__(1)
        self.submitted: list[Any] = []

    def submit(self, work: Any, /, *args: Any, **options: Any) -> Future[Any]:
        self.submitted.append((work, args))
        return super().submit(work, *args, **options)


async def test_the_heap_is_trimmed_once_after_several_large_bodies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heap, "DELAY_S", 0.01)
    trimmed: list[int] = []
    monkeypatch.setattr(heap, "_malloc_trim", lambda: trimmed.append)
    with Recorder() as workers:
        trim = HeapTrim(workers)
        trim.after(LARGE_BODY_BYTES - 1)
        assert trim._planned is None
        for _ in range(3):
            trim.after(LARGE_BODY_BYTES)
        await until(lambda: trimmed, "the heap is trimmed")
        assert trimmed == [0] and len(workers.submitted) == 1
        trim.after(LARGE_BODY_BYTES)
        trim.close()
        await asyncio.sleep(0.05)
        assert trimmed == [0]


def test_the_c_library_of_this_machine_trims_or_is_let_be() -> None:
    trim = heap._malloc_trim()
    assert trim is None or trim(0) in (0, 1)


def test_every_large_call_is_followed_by_a_trim(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(MockEngine(says("ab")))
    sizes: list[int] = []
    monkeypatch.setattr(server.state.heap, "after", sizes.append)
    server.complete(prompt="x")
    refused = server.post("/tokenize", {"prompt": "x" * 300_000, "messages": []})
    assert refused.status_code == 400
    wait_until(lambda: len(sizes) == 2, "both calls are over")
    assert sizes[0] < 100 and sizes[1] > 300_000
    assert json.loads(refused.content)["error"]["param"]
