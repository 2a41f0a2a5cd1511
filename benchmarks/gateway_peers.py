"""The gateways that are compared: how each is set up, configured, started and imported.

All have the same two targets, which are one endpoint under two addresses, and one worker process.
`headrace gateway` and LiteLLM ask for a key; ours has budgets and limits at every level of it, and
writes a ledger. Every log goes to a file. LiteLLM's proxy is 1.106 of the package index; it has no
database here, so it counts no budget.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.load_runs import END_TIMEOUT_S, START_TIMEOUT_S, RunError, pinned

# Of this benchmark's own gateways on loopback, for as long as they run.
KEY = "hr-" + "benchmark" * 4
MODEL = "chat"
_POLL_S = 0.01
_SHOWN_CHARACTERS = 2000


class Peer(NamedTuple):
    """One gateway. setup: packages of its environment, () for this project's own. configure: its
    configuration in a folder, for an endpoint's URL. command: that starts it, of its Python, that
    folder, the endpoint's URL and a port. imports: what it imports at the start."""

    name: str
    title: str
    setup: tuple[str, ...]
    configure: Callable[[Path, str], None]
    command: Callable[[Path, Path, str, int], list[str]]
    imports: str
    environment: tuple[tuple[str, str], ...] = ()


class Running(NamedTuple):
    """A gateway that answers. first_answer_s: from its start to its first answer."""

    url: str
    pid: int
    first_answer_s: float


def _configure_headrace(folder: Path, endpoint: str) -> None:
    budget = {"usd": 1e6, "per": "1M", "calendar": True}
    price = {"input": 1.0, "output": 2.0}
    limits = {"rpm": 10**9, "tpm": 10**13, "concurrency": 10_000}
    settings = {
        "access": {
            "organisations": {"mill": {"budgets": [budget]}},
            "teams": {"stones": {"organisation": "mill", "budgets": [budget], "limits": [limits]}},
            "keys": {"bench": {"key": "env:GATEWAY_BENCH_KEY", "team": "stones",
                               "budgets": [budget], "limits": [{"rpm": 10**9}]}},
        },
        "ledger": {"path": "ledger.sqlite"},
        "providers": {
            name: {"base_url": f"{url}/v1", "dialect": "openai-chat", "api_key": ["none"]}
            for name, url in _two(endpoint).items()
        },
        "models": {
            MODEL: {"targets": [{"model": f"{name}/instant", "price": price}
                                for name in _two(endpoint)]}
        },
    }  # fmt: skip
    # JSON is YAML.
    (folder / "gateway.yaml").write_text(json.dumps(settings))


def _configure_litellm(folder: Path, endpoint: str) -> None:
    settings = {
        "model_list": [
            {"model_name": MODEL, "litellm_params": {
                "model": "openai/instant", "api_base": f"{url}/v1", "api_key": "none"}}
            for url in _two(endpoint).values()
        ],
        "general_settings": {"master_key": KEY},
    }  # fmt: skip
    (folder / "litellm.yaml").write_text(json.dumps(settings))


def _two(endpoint: str) -> dict[str, str]:
    """The endpoint under two addresses: two providers with connections of their own."""
    return {"left": endpoint, "right": endpoint.replace("127.0.0.1", "localhost")}


def _headrace_command(python: Path, folder: Path, endpoint: str, port: int) -> list[str]:
    command = [str(python), "-m", "headrace", "gateway", "--config", str(folder / "gateway.yaml")]
    return [*command, "--host", "127.0.0.1", "--port", str(port)]


def _bare_command(python: Path, folder: Path, endpoint: str, port: int) -> list[str]:
    script = Path(__file__).with_name("bare_gateway.py")
    return [str(python), str(script), "--target", endpoint, "--port", str(port)]


def _litellm_command(python: Path, folder: Path, endpoint: str, port: int) -> list[str]:
    command = [str(python.with_name("litellm")), "--config", str(folder / "litellm.yaml")]
    command += ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return [*command, "--telemetry", "False"]


HEADRACE = Peer(
    name="headrace",
    title="headrace gateway",
    setup=(),
    configure=_configure_headrace,
    command=_headrace_command,
    imports="headrace.gateway.run",
    environment=(("GATEWAY_BENCH_KEY", KEY),),
)
BARE = Peer(
    name="bare",
    title="bare loop",
    setup=("aiohttp", "starlette", "uvicorn", "uvloop", "httptools"),
    configure=lambda folder, endpoint: None,
    command=_bare_command,
    imports="aiohttp, starlette.applications, uvicorn",
)
LITELLM = Peer(
    name="litellm",
    title="LiteLLM proxy",
    setup=("litellm[proxy]",),
    configure=_configure_litellm,
    command=_litellm_command,
    imports="litellm.proxy.proxy_server",
    # Its prices come from the package and not from the net.
    environment=(("LITELLM_LOCAL_MODEL_COST_MAP", "True"),),
)


def make_environment(peer: Peer, folder: Path) -> Path:
    """The Python of a peer's environment below `folder`, made where it is not there yet."""
    if not peer.setup:
        return Path(sys.executable)
    python = folder / peer.name / "bin" / "python"
    ready = folder / peer.name / "ready"
    if not ready.is_file():
        subprocess.run([sys.executable, "-m", "venv", folder / peer.name], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *peer.setup], check=True)
        ready.write_text(" ".join(peer.setup))
    return python


def import_s(peer: Peer, python: Path) -> float:
    """Seconds that its imports take in a new process, once the interpreter runs."""
    code = f"import time; t = time.perf_counter(); import {peer.imports}; "
    code += "print(time.perf_counter() - t)"
    environment = os.environ | dict(peer.environment)
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return float(done.stdout.strip().splitlines()[-1])


@contextmanager
def running(
    peer: Peer, python: Path, endpoint: str, folder: Path, on: Sequence[int] | None
) -> Iterator[Running]:
    """A gateway in front of `endpoint` from its first answer on; SIGTERM ends it."""
    folder.mkdir(parents=True)
    peer.configure(folder, endpoint)
    port = _free_port()
    command = peer.command(python, folder, endpoint, port)
    environment = os.environ | dict(peer.environment)
    begun_s = time.monotonic()
    with (folder / "log.txt").open("wb") as log, pinned(on):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for_answer(url, process, folder / "log.txt")
        yield Running(url, process.pid, time.monotonic() - begun_s)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def _wait_for_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + START_TIMEOUT_S
    last = "nobody listens"
    while time.monotonic() < end_s and process.poll() is None:
        try:
            status = _ask(url)
        except OSError:
            time.sleep(_POLL_S)
            continue
        if status == 200:
            return
        last = f"HTTP {status}"
        time.sleep(_POLL_S)
    told = log.read_text(errors="replace")[-_SHOWN_CHARACTERS:]
    raise RunError(f"{process.args!r} did not answer ({last}); it said:\n{told}")


def _ask(url: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Begin."}]})
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    try:
        connection.request("POST", "/v1/chat/completions", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()
