"""`serve` as a process: what it says when it starts, and what it cannot serve."""

from __future__ import annotations

import io
import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.config import EngineConfig, ServerConfig
from headrace.engine.messages import Loading
from headrace.engine.sampling.defaults import in_full
from headrace.errors import HeadraceError
from headrace.server import run
from headrace.server.lifecycle import announce
from headrace.server.lifecycle.loading_line import LoadingLine
from headrace.server.state import ServerState
from headrace.text import Tokenizer
from tests.server.conftest import served_model
from tests.server.mock_engine import MockEngine, says
from tests.server.serve_process import READY_TIMEOUT_S, Process


def test_what_it_says_when_ready(running: Process, model: Path) -> None:
    assert running.ready["model"] == model.stem
    assert running.ready["url"].startswith("http://127.0.0.1:")
    assert running.ready["ready_s"] > 0
    assert running.ready["max_model_len"] == 512
    assert running.ready["default_sampling_params"]["temperature"] == 1
    assert {"spawn", "import", "weights"} <= set(running.ready["phases_s"])
    assert {"import", "open", "tokenizer"} == set(running.ready["server_phases_s"])
    for phases in (running.ready["phases_s"], running.ready["server_phases_s"]):
        assert all(0 <= seconds < running.ready["ready_s"] for seconds in phases.values())
    assert httpx.get(f"{running.url}/health").json()["status"] == "ok"


def test_a_name_of_a_page_is_refused(running: Process) -> None:
    """On loopback, where a page may have made its own name point."""
    refused = httpx.get(f"{running.url}/v1/models", headers={"host": "evil.example"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "unknown_host")
    assert "--allowed-hosts" in refused.json()["error"]["message"]
    named = {"host": "localhost"}
    assert httpx.get(f"{running.url}/v1/models", headers=named).status_code == 200


@pytest.mark.process
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


@pytest.mark.process
def test_the_line_for_people(started: Callable[..., Process], model: Path) -> None:
    process = started(model, as_json=False).wait_ready()
    assert process.ready.startswith(f"headrace serves {model.stem} at http://127.0.0.1:")
    address = process.ready.removeprefix(f"headrace serves {model.stem} at ").partition("/v1")[0]
    assert f"{address}/v1, chat at {address}/ (ready in " in process.ready


_ENDS_AS_IT_TRIMS = """
import os, signal, sys
from headrace.config import EngineConfig, ServerConfig
from headrace.server import run
from headrace.server.admission import heap
heap.trim_heap = lambda: os.kill(os.getpid(), signal.SIGTERM)
sys.exit(run.serve(EngineConfig(model=sys.argv[1], backend="reference"), ServerConfig(port=0)))
"""


@pytest.mark.process
def test_what_loading_freed_goes_back_to_the_system(model: Path) -> None:
    """This server ends as it trims its heap; one that does not trim it is killed by the limit."""
    done = subprocess.run(
        [sys.executable, "-c", _ENDS_AS_IT_TRIMS, str(model)],
        capture_output=True, text=True, timeout=READY_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "headrace serves" in done.stdout


@pytest.mark.process
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


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "127.0.0.2"}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "::"}, True),
        ({"host": ""}, True),
        ({"host": "some.name"}, True),
        ({"host": "0.0.0.0", "api_key": ("k",)}, False),
        ({"host": "0.0.0.0", "uds": "/somewhere"}, False),
    ],
)
def test_strangers_without_a_key_are_warned_of(
    caplog: pytest.LogCaptureFixture, settings: dict[str, Any], warned: bool
) -> None:
    announce.warn_of_strangers(ServerConfig(**settings))
    assert [f"--host {settings.get('host') or chr(39) * 2}" in one for one in caplog.messages] == (
        [True] if warned else []
    )


@pytest.mark.parametrize(
    ("defaults", "line"),
    [
        (
            {"temperature": 0.6, "top_k": 20},
            "sampling defaults: temperature 0.6, top_k 20, for requests that name no value",
        ),
        ({}, "sampling defaults: neutral (temperature 1, no filter)"),
    ],
)
def test_sampling_defaults_in_force_are_logged_and_announced(
    tokenizer: Tokenizer,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    defaults: dict[str, float],
    line: str,
) -> None:
    state = ServerState(config=ServerConfig())
    engine = MockEngine(says("x"))
    state.set_model(served_model(engine, tokenizer=tokenizer, sampling_defaults=defaults))
    with caplog.at_level(logging.INFO):
        announce.announce(state, "http://127.0.0.1:1", announce.Times(1.0, {}, {}), as_json=True)
    state.close()
    assert any(message.startswith(line) for message in caplog.messages)
    announced = json.loads(capsys.readouterr().out)["default_sampling_params"]
    assert announced == in_full(defaults)


@pytest.mark.parametrize("populates", [True, False])
def test_populating_the_cache_is_logged_once(
    caplog: pytest.LogCaptureFixture, populates: bool
) -> None:
    progress = run._Progress(LoadingLine(None), populates=populates)
    with caplog.at_level(logging.INFO):
        for phase in ("weights", "kv_cache", "warm_up", "kv_cache"):
            progress.tell(Loading(phase))
    said = ["populating the KV cache: all of its memory is touched first"]
    assert caplog.messages == (said if populates else [])


@pytest.mark.process
def test_loading_is_logged_outside_a_terminal(started: Callable[..., Process], model: Path) -> None:
    _, err = started(model).wait_ready().end()
    assert err.count(f"loading {model}") == 1


@pytest.mark.parametrize("stdout", [None, "closed"])
def test_without_stdout_the_line_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stdout: str | None
) -> None:
    stream = None if stdout is None else io.StringIO()
    if stream is not None:
        stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    with caplog.at_level(logging.WARNING):
        announce.print_line("headrace serves")
    assert any("headrace serves" in message for message in caplog.messages)


@pytest.fixture
def refused(model: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """`refused(...)` serves in this process, which has to fail; the last line of what it says."""

    def serve(**settings: Any) -> str:
        names = ServerConfig.__struct_fields__
        server = {"port": 0, **{name: settings.pop(name) for name in names if name in settings}}
        engine = {"model": str(model), "backend": "reference", **settings}
        with pytest.raises(HeadraceError) as caught:
            run.serve(EngineConfig(**engine), ServerConfig(**server))
        assert capsys.readouterr().out == ""
        return str(caught.value).splitlines()[-1]

    yield serve
    logging.captureWarnings(False)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "nothing.gguf"}, "nothing.gguf"),
        ({"host": "203.0.113.1"}, "--host 203.0.113.1"),
        ({"chat_template": "nothing.jinja"}, "--chat-template nothing.jinja"),
        ({"max_model_len": 100_000}, "--max-model-len"),
    ],
)
def test_what_cannot_be_served(
    refused: Callable[..., str], settings: dict[str, Any], said: str
) -> None:
    assert said in refused(**settings)


def test_a_port_in_use(refused: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(port=port)
    assert f"--port {port}" in error
    assert "--port 0" in error


@pytest.mark.process
def test_a_refusal_is_one_exit_status(started: Callable[..., Process], model: Path) -> None:
    process = started(model, host="203.0.113.1")
    out, err = process.process.communicate(timeout=READY_TIMEOUT_S)
    assert process.process.returncode == 1
    assert out == ""
    assert "--host 203.0.113.1" in err.splitlines()[-1]
