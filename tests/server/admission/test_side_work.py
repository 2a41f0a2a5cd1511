"""Large texts to tokenize or detokenize: never before generation, and few of them wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from headrace.server.admission import side_work
from headrace.server.admission.side_work import SideWork
from tests.server.conftest import Running
from tests.server.connections.raw import RawClient, post
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]

LARGE = {"prompt": "x" * 5000}
KEPT = {"prompt": "x" * 5000, "truncate_prompt_tokens": 10}


@pytest.fixture
def blocked(start: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server whose side work is stuck until the test ends."""
    monkeypatch.setattr(side_work, "MAX_WAITING", 2)
    server = start(MockEngine(says("ab")))
    release = threading.Event()
    server.state.side_work.workers.submit(release.wait)
    yield server
    release.set()


def _wait_for(number: int, server: Running) -> None:
    for _ in range(500):
        if server.state.side_work.num_open == number:
            return
        time.sleep(0.01)
    raise AssertionError(server.state.side_work.num_open)


def test_generation_does_not_wait_and_too_many_are_refused(blocked: Running) -> None:
    with ExitStack() as ends:
        for _ in range(3):
            ends.enter_context(RawClient(blocked.url)).send(post("/tokenize", LARGE))
        _wait_for(3, blocked)
        refused = blocked.post("/tokenize", LARGE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert refused.headers["retry-after"] == "5"
        assert blocked.post("/detokenize", {"tokens": [65] * 5000}).status_code == 429
        assert blocked.post("/tokenize", {"prompt": "small"}).json()["count"] > 0
        assert blocked.complete(**KEPT)["choices"][0]["text"] == "ab"
    # Who has gone waits no more.
    _wait_for(0, blocked)


def test_what_waits_at_the_end_is_not_begun() -> None:
    work, begun, release = SideWork(), threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        release.wait()

    first, second = work.workers.submit(stuck), work.workers.submit(stuck)
    try:
        assert begun.wait(10)
        work.close()
        assert second.cancelled()
    finally:
        release.set()
    first.result(10)


def test_a_client_that_goes_while_its_prompt_waits_costs_nothing(start: Start) -> None:
    server = start(MockEngine(says("ab")))
    server.state.workers = workers = ThreadPoolExecutor(1)
    release = threading.Event()
    workers.submit(release.wait)
    with pytest.raises(httpx.TimeoutException):
        server.post("/v1/completions", KEPT, timeout=0.3)
    for _ in range(500):
        if server.state.admission.num_queued == 0:
            break
        time.sleep(0.01)
    assert server.state.admission.num_queued == 0
    release.set()
    assert not server.engine.submitted
    assert server.complete(**KEPT)["choices"][0]["text"] == "ab"
    workers.shutdown()
