"""`serve` as a process of its own: a real engine with a tiny model, on the reference backend."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from headrace.config.settings import EngineConfig, ServerConfig
from headrace.engine.params import SamplingParams
from headrace.llm import LLM
from headrace.server import run
from tests.tiny import write_tiny_gguf, write_tiny_hf

READY_TIMEOUT_S = 60
MAIN = (
    "import json, sys; from headrace.config.settings import EngineConfig, ServerConfig; "
    "from headrace.server.run import serve; a = json.loads(sys.argv[1]); "
    "sys.exit(serve(EngineConfig(**a['engine']), ServerConfig(**a['server']), as_json=a['json']))"
)


@dataclass
class Process:
    """A started `serve`."""

    process: subprocess.Popen[str]
    url: str = ""
    ready: Any = None

    def wait_ready(self) -> Process:
        """Read the line it prints once the model is there."""
        watchdog = threading.Timer(READY_TIMEOUT_S, self.process.kill)
        watchdog.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert line, self.process.communicate()[1]
        self.ready = json.loads(line) if line.startswith("{") else line
        if isinstance(self.ready, dict):
            self.url = self.ready["url"]
        return self

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, timeout=60)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait; exit code and stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            _, err = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, err


def spawn(
    model: Path | str, *, as_json: bool = True, stdout: Path | None = None, **settings: Any
) -> Process:
    """Start it; `settings` are of the server or of the engine. stdout: instead of a pipe."""
    server_names = ("host", "port", "served_model_name", "chat_template", "log_level")
    server = {"port": 0, **{k: v for k, v in settings.items() if k in server_names}}
    engine = {"backend": "reference", **{k: v for k, v in settings.items() if k not in server}}
    arguments = json.dumps(
        {"engine": {"model": str(model), **engine}, "server": server, "json": as_json}
    )
    return Process(
        subprocess.Popen(
            [sys.executable, "-c", MAIN, arguments],
            stdout=subprocess.PIPE if stdout is None else stdout.open("w"),
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    )


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


GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "return_token_ids": True}


def test_what_it_says_when_ready(running: Process, model: Path) -> None:
    assert running.ready["model"] == model.stem
    assert running.ready["url"].startswith("http://127.0.0.1:")
    assert running.ready["ready_s"] > 0
    assert running.ready["max_model_len"] == 512
    assert {"spawn", "import", "weights"} <= set(running.ready["phases_s"])
    assert {"import", "open", "tokenizer"} == set(running.ready["server_phases_s"])
    for phases in (running.ready["phases_s"], running.ready["server_phases_s"]):
        assert all(0 <= seconds < running.ready["ready_s"] for seconds in phases.values())
    assert httpx.get(f"{running.url}/health").json()["status"] == "ok"


def test_how_far_loading_is_can_be_asked(started: Callable[..., Process], model: Path) -> None:
    """The server listens long before the engine is there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = started(model, port=port)
    seen = []
    for _ in range(2000):
        try:
            body = httpx.get(f"http://127.0.0.1:{port}/health").json()
        except httpx.TransportError:
            time.sleep(0.005)
            continue
        if body["status"] == "ok":
            break
        assert body["status"] == "loading"
        assert 0 <= body["progress"] <= 1
        seen.append(body["phase"])
    process.wait_ready()
    assert seen
    known = [*process.ready["phases_s"]]
    assert sorted(seen, key=known.index) == seen


def test_whole_and_streamed_replies_are_the_same_text(running: Process, model: Path) -> None:
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
    whole = running.post("/v1/completions", prompt="Once", logprobs=2, **GREEDY).json()
    choice = whole["choices"][0]
    assert len(choice["token_ids"]) == 12
    assert choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["tokens"]) == 12
    assert whole["usage"]["completion_tokens"] == 12
    pieces = client.completions.create(
        model=model.stem, prompt="Once", temperature=0, max_tokens=12, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert "".join(piece.choices[0].text for piece in pieces) == choice["text"]


def test_a_conversation(running: Process, model: Path) -> None:
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
    reply = client.chat.completions.create(
        model=model.stem, messages=[{"role": "user", "content": "hi"}], max_tokens=4
    )
    assert reply.usage is not None
    assert 1 <= reply.usage.completion_tokens <= 4
    assert reply.system_fingerprint is not None
    assert reply.system_fingerprint.startswith("fp_")


def test_cached_tokens_are_told(running: Process) -> None:
    prompt = "a prompt that fills more than one block of the KV cache" * 3
    first = running.post("/v1/completions", prompt=prompt, **GREEDY).json()
    second = running.post("/v1/completions", prompt=prompt, **GREEDY).json()
    assert second["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128
    salted = running.post("/v1/completions", prompt=prompt, cache_salt="other", **GREEDY).json()
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_seeds_hold(running: Process) -> None:
    fields = {"prompt": "Once", "max_tokens": 8, "return_token_ids": True, "ignore_eos": True}

    def ids(seed: int | None) -> list[int]:
        reply = running.post("/v1/completions", seed=seed, **fields).json()
        found: list[int] = reply["choices"][0]["token_ids"]
        return found

    assert ids(7) == ids(7)
    assert ids(-(2**63)) == ids(-(2**63))
    assert ids(2**63 - 1) == ids(2**63 - 1)
    assert ids(7) != ids(8)
    assert ids(None) != ids(None)


@pytest.mark.parametrize("seed", [-1, 2**63 - 1])
def test_a_seed_gives_the_same_tokens_over_http_and_in_process(
    running: Process, model: Path, seed: int
) -> None:
    llm = LLM(str(model), backend="reference")
    params = SamplingParams(seed=seed, max_tokens=8, ignore_eos=True)
    (here,) = llm.generate("Once", params)
    reply = running.post(
        "/v1/completions", prompt="Once", seed=seed, max_tokens=8, ignore_eos=True,
        return_token_ids=True,
    ).json()  # fmt: skip
    assert reply["choices"][0]["token_ids"] == list(here.token_ids)


def test_a_stop_string_frees_the_engine(running: Process) -> None:
    whole = running.post("/v1/completions", prompt="Once", **GREEDY).json()["choices"][0]["text"]
    stop = whole[3:5]
    reply = running.post(
        "/v1/completions", prompt="Once", stop=stop, **{**GREEDY, "max_tokens": 400}
    )
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == stop
    assert choice["text"] == whole[: whole.index(stop)]
    assert _becomes_idle(running)


def test_a_client_that_goes_away_frees_the_engine(running: Process) -> None:
    body = {"prompt": "Once", "max_tokens": 480, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{running.url}/v1/completions", json=body, timeout=30) as reply:
        next(reply.iter_lines())
    assert _becomes_idle(running)


def _becomes_idle(running: Process) -> bool:
    """Whether no request runs or waits and no block is owned, soon."""
    idle = {
        "vllm:num_requests_running": 0,
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0,
    }
    for _ in range(100):
        lines = httpx.get(f"{running.url}/metrics").text.splitlines()
        now = {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if line[0] != "#"
        }
        if {name: now[name] for name in idle} == idle:
            return True
        time.sleep(0.02)
    return False


def test_a_folder_and_a_file_give_the_same_text_but_say_which_they_are(
    started: Callable[..., Process], running: Process, tmp_path: Path
) -> None:
    folder = write_tiny_hf(tmp_path / "tiny", family="qwen3")
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}")
    other = started(folder, served_model_name=["mine", "also"], chat_template=str(template))
    other.wait_ready()
    assert other.ready["model"] == "mine"
    mine = other.post("/v1/completions", prompt="Once", **GREEDY).json()
    theirs = running.post("/v1/completions", prompt="Once", **GREEDY).json()
    assert mine["choices"][0]["token_ids"] == theirs["choices"][0]["token_ids"]
    assert mine["system_fingerprint"] != ""
    messages = [{"role": "user", "content": "ab"}]
    tokens = other.post("/tokenize", messages=messages, model="also").json()["tokens"]
    assert tokens == [*b"ab"]


def test_the_line_for_people(started: Callable[..., Process], model: Path) -> None:
    process = started(model, as_json=False).wait_ready()
    assert process.ready.startswith(f"headrace serves {model.stem} at http://127.0.0.1:")
    assert "/v1 (ready in " in process.ready


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_a_stream_end(
    started: Callable[..., Process], model: Path, number: int
) -> None:
    process = started(model).wait_ready()
    body = {"prompt": "Once", "max_tokens": 100, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{process.url}/v1/completions", json=body, timeout=30) as reply:
        lines = reply.iter_lines()
        next(lines)
        process.process.send_signal(number)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    code, err = process.end(number)
    assert code == 0
    assert "Traceback" not in err


def test_a_second_signal_ends_streams_with_an_error(
    started: Callable[..., Process], model: Path
) -> None:
    process = started(model, max_model_len=512).wait_ready()
    body = {"prompt": ["Once"] * 60, "max_tokens": 500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{process.url}/v1/completions", json=body, timeout=30) as reply:
        lines = reply.iter_lines()
        next(lines)
        process.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert "engine_dead" in rest[-1]
    code, err = process.end()
    assert code == 0
    assert "Traceback" not in err


def _children(pid: int) -> list[int]:
    """Processes started by `pid` (fields of /proc/N/stat after the name: state, parent, …)."""
    stats = (path.read_text() for path in Path("/proc").glob("[0-9]*/stat"))
    fields = ((stat.split()[0], stat.rpartition(")")[2].split()) for stat in stats)
    return [int(number) for number, rest in fields if int(rest[1]) == pid]


def test_an_engine_that_is_killed(started: Callable[..., Process], model: Path) -> None:
    process = started(model).wait_ready()
    body = {"prompt": ["Once"] * 60, "max_tokens": 500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{process.url}/v1/completions", json=body, timeout=30) as reply:
        lines = reply.iter_lines()
        next(lines)
        for child in _children(process.process.pid):
            os.kill(child, signal.SIGKILL)
        rest = [line for line in lines if line]
    assert "engine_dead" in rest[-1]
    assert "SIGKILL" in rest[-1]
    health = httpx.get(f"{process.url}/health")
    assert (health.status_code, health.json()["status"]) == (503, "dead")
    assert process.post("/v1/completions", prompt="x").status_code == 503
    code, err = process.end()
    assert code == 0
    assert "Traceback" not in err


def test_a_client_that_never_reads_is_cut_at_the_end(
    started: Callable[..., Process], model: Path
) -> None:
    process = started(model).wait_ready()
    fields = {"max_tokens": 500, "ignore_eos": True, "stream": True, "logprobs": 20}
    body = json.dumps({"prompt": ["Once"] * 60, **fields}).encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", int(process.url.rpartition(":")[2])))
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        assert _generates(process, 10_000)
        process.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        code, err = process.end()
    assert code == 0
    complaints = [line for line in err.splitlines() if " INFO " not in line]
    assert len(complaints) == 1, err
    assert "1 connection(s) were cut" in complaints[0]


def _generates(process: Process, num_tokens: int) -> bool:
    """Whether so many tokens are there soon: more than the buffers on the way take."""
    for _ in range(500):
        text = httpx.get(f"{process.url}/metrics").text
        (line,) = re.findall(r"^vllm:generation_tokens_total.* ([\d.e+]+)$", text, re.M)
        if float(line) >= num_tokens:
            return True
        time.sleep(0.05)
    return False


def test_stdout_that_takes_nothing_is_no_obstacle(
    started: Callable[..., Process], model: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = started(model, port=port, stdout=Path("/dev/full"))
    for _ in range(2000):
        with suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                break
        time.sleep(0.01)
    time.sleep(0.1)
    code, err = process.end()
    assert code == 0, err
    assert "cannot write to stdout ([Errno 28]" in err
    assert f"http://127.0.0.1:{port}" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("stdout", [None, "closed"])
def test_without_stdout_the_line_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stdout: str | None
) -> None:
    stream = None if stdout is None else io.StringIO()
    if stream is not None:
        stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    with caplog.at_level(logging.WARNING):
        run._print("headrace serves")
    assert any("headrace serves" in message for message in caplog.messages)


def test_an_interrupt_before_the_loop_runs_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "listen", interrupted)
    assert run.serve(EngineConfig(), ServerConfig()) == 130


def test_a_signal_while_loading(started: Callable[..., Process], model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = started(model, port=port)
    for _ in range(2000):
        try:
            health = httpx.get(f"http://127.0.0.1:{port}/health", timeout=30)
            break
        except httpx.ConnectError:
            time.sleep(0.005)
    assert health.json()["status"] in ("loading", "ok")
    code, err = process.end()
    assert code == 0
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "nothing.gguf"}, "nothing.gguf"),
        ({"host": "203.0.113.1"}, "--host 203.0.113.1"),
        ({"chat_template": "nothing.jinja"}, "--chat-template nothing.jinja"),
        ({"max_model_len": 100_000}, "max_model_len"),
    ],
)
def test_what_cannot_be_served(
    started: Callable[..., Process], model: Path, settings: dict[str, Any], said: str
) -> None:
    process = started(settings.pop("model", model), **settings)
    out, err = process.process.communicate(timeout=READY_TIMEOUT_S)
    assert process.process.returncode == 1
    assert out == ""
    assert said in err.splitlines()[-1]


def test_a_port_in_use(started: Callable[..., Process], model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = started(model, port=port)
        _, err = process.process.communicate(timeout=READY_TIMEOUT_S)
    assert process.process.returncode == 1
    assert f"--port {port}" in err
    assert "--port 0" in err
