"""A server over a mock engine: uvicorn in a thread, on a free loopback port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.config import ServerConfig
from headrace.http.host_names import HostNames
from headrace.http.listen import listen, url_of
from headrace.http.server import HttpServer
from headrace.protocol.sse import SSEReader
from headrace.server.app import build_app
from headrace.server.model.served import ServedModel
from headrace.server.state import ServerState
from headrace.text import ChatTemplate, Tokenizer, load_tokenizer
from headrace.weights.checkpoint import TokenizerData
from tests.server.mock_engine import MockEngine
from tests.server.serve_process import Process, spawn
from tests.tiny import CHAT_TEMPLATE, EOS, IM_END, gguf_tokenizer, tokenizer_config, write_tiny_gguf

MODEL = "mock-model"


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Bytes are their own ids."""
    data = TokenizerData(kind="gguf", gguf=gguf_tokenizer(), config=tokenizer_config())
    return load_tokenizer(data, (EOS, IM_END))


@dataclass
class Running:
    """A server that runs; `state` is its own, to be looked at only."""

    url: str
    state: ServerState
    engine: MockEngine
    client: httpx.Client
    _loop: asyncio.AbstractEventLoop = field(repr=False)

    @property
    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    @property
    def async_openai(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.client.post(path, json=body, **options)

    def complete(self, **fields: Any) -> Any:
        """The reply to a completion that has to succeed."""
        reply = self.post("/v1/completions", {"prompt": "x", **fields})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def chat(self, **fields: Any) -> Any:
        """The reply to a conversation that has to succeed."""
        messages = [{"role": "user", "content": "x"}]
        reply = self.post("/v1/chat/completions", {"messages": messages, **fields})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def stream_completion(self, **fields: Any) -> list[Any]:
        """The events of a completion."""
        return events_of(self.post("/v1/completions", {"prompt": "x", "stream": True, **fields}))

    def stream_chat(self, **fields: Any) -> list[Any]:
        """The events of a reply to a conversation."""
        body = {"messages": [{"role": "user", "content": "x"}], "stream": True, **fields}
        return events_of(self.post("/v1/chat/completions", body))

    def call(self, work: Callable[[], None]) -> None:
        """Do something in the server's own thread."""
        self._loop.call_soon_threadsafe(work)

    def metrics(self) -> dict[str, float]:
        """Samples of /metrics by name and labels."""
        lines = self.client.get("/metrics").text.splitlines()
        samples = (line.rpartition(" ") for line in lines if line and line[0] != "#")
        return {name: float(value) for name, _, value in samples}


def events_of(reply: httpx.Response) -> list[Any]:
    """The JSON of a streamed reply's events; the last must be [DONE]."""
    assert reply.status_code == 200, reply.text
    data = [event.data for event in SSEReader().feed(reply.content)]
    assert data[-1] == "[DONE]"
    return [msgspec.json.decode(text) for text in data[:-1]]


def served_model(engine: MockEngine, **changes: Any) -> ServedModel:
    """A model around a mock engine."""
    facts: dict[str, Any] = {
        "names": (MODEL, "alias"),
        "engine": engine,
        "template": ChatTemplate(CHAT_TEMPLATE),
        "fingerprint": "fp_0123456789ab",
        "created_s": 1700000000,
        "max_logprobs": 20,
    }
    return ServedModel(**{**facts, **changes})


class Switch:
    """An ASGI app that is whatever app a test has put there: one uvicorn serves all tests."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@dataclass(frozen=True)
class Uvicorn:
    """The server's thread."""

    url: str
    switch: Switch
    loop: asyncio.AbstractEventLoop


@pytest.fixture(scope="session")
def uvicorn_thread() -> Iterator[Uvicorn]:
    """uvicorn, as `headrace serve` runs it, in a thread of its own."""
    sock = listen("127.0.0.1", 0)
    switch = Switch()
    started: Future[tuple[HttpServer, asyncio.AbstractEventLoop]] = Future()

    async def main() -> None:
        hosts = HostNames.of_listener(sock, "", (), "--allowed-hosts")
        http = HttpServer(switch, sock, grace_s=1, hosts=hosts)
        http.start()
        started.set_result((http, asyncio.get_running_loop()))
        await http.ended()

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    http, loop = started.result(10)
    yield Uvicorn(url_of(sock), switch, loop)
    loop.call_soon_threadsafe(http.stop)
    thread.join(15)
    assert not thread.is_alive()


@pytest.fixture
def start(uvicorn_thread: Uvicorn, tokenizer: Tokenizer) -> Iterator[Callable[..., Running]]:
    """`start(engine, loaded=True, config=ServerConfig(), **changes of the model)` is a server."""
    with ExitStack() as ends:

        def run(
            engine: MockEngine,
            *,
            loaded: bool = True,
            config: ServerConfig | None = None,
            **changes: Any,
        ) -> Running:
            state = ServerState(config=config or ServerConfig())
            ends.callback(state.close)
            if loaded:
                state.set_model(served_model(engine, **{"tokenizer": tokenizer, **changes}))
            uvicorn_thread.switch.app = build_app(state)
            url = uvicorn_thread.url
            # Without TLS there is nothing to verify, and making the context takes long.
            client = ends.enter_context(httpx.Client(base_url=url, timeout=20, verify=False))
            return Running(url, state, engine, client, uvicorn_thread.loop)

        yield run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model"), family="qwen3")


@pytest.fixture(scope="module")
def running(model: Path) -> Iterator[Process]:
    """One server for the tests that only ask."""
    process = spawn(model).wait_ready()
    yield process
    code, err = process.end()
    assert code == 0, err
    assert "Traceback" not in err


@pytest.fixture
def started() -> Iterator[Callable[..., Process]]:
    """`started(...)` spawns servers that end with the test."""
    processes: list[Process] = []

    def start(*args: Any, **settings: Any) -> Process:
        processes.append(spawn(*args, **settings))
        return processes[-1]

    yield start
    for process in processes:
        process.end()
