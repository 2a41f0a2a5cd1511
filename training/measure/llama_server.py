"""llama.cpp's llama-server for a moment, on a loopback port: greedy continuations by token id."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

# A small model is there in a second; an unusable file ends the process, which is noticed.
START_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 120.0
CONTEXT_TOKENS = 512


class LlamaServer:
    """`with LlamaServer(program, gguf) as server:` starts it and, at the end, stops it.

    K and V are kept in float32 and the fused attention is off, so that an F32 file is computed in
    float32 throughout. Raises RuntimeError when it does not start.
    """

    def __init__(self, program: Path, gguf: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        options = f"--host 127.0.0.1 --port {self._port} -c {CONTEXT_TOKENS} -t 1 -np 1 -ngl 0"
        precision = "-ctk f32 -ctv f32 -fa off --no-warmup"
        self._command = [str(program), "-m", str(gguf), *options.split(), *precision.split()]

    def __enter__(self) -> LlamaServer:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        give_up_at_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < give_up_at_s and self._process.poll() is None:
            try:
                with urlopen(self._url("/health"), timeout=5.0):
                    return self
            except (URLError, ConnectionError, TimeoutError):
                time.sleep(0.2)
        status = self._process.poll()
        self._stop()
        raise RuntimeError(
            f"{' '.join(self._command)}: not ready within {START_TIMEOUT_S:g} s "
            f"(exit status {status}); run it by hand to see why"
        )

    def __exit__(self, *_: object) -> None:
        self._stop()

    def greedy(self, prompt: list[int], n_tokens: int) -> list[int]:
        """The ids that follow `prompt` at temperature 0, until an end or `n_tokens`."""
        body = {
            "prompt": prompt,
            "n_predict": n_tokens,
            "temperature": 0,
            "repeat_penalty": 1.0,
            "return_tokens": True,
            "cache_prompt": False,
        }
        headers = {"Content-Type": "application/json"}
        request = Request(self._url("/completion"), json.dumps(body).encode(), headers)
        with urlopen(request, timeout=REQUEST_TIMEOUT_S) as reply:
            return [int(token) for token in json.load(reply)["tokens"]]

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}{path}"

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
