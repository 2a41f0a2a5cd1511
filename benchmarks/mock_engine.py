"""An engine process that computes nothing: the real link and messages, tokens out of thin air.

Started by `server_overhead.py` in place of `headrace.engine.process`. Every open request gets a
token a step; HEADRACE_MOCK_STEP_S is the time between steps, 0 for as fast as they can be sent.
What it took itself, from reading a request to writing its first token, is told as that token's
prefill_s, so that whoever measures can take it off.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any, cast

import msgspec

from headrace.config.settings import EngineConfig
from headrace.engine.messages import EngineInfo, Output, Ready, Start, Started, Stats, Submit
from headrace.engine.process.__main__ import Link, serve

MAX_MODEL_LEN = 4096


class MockCore:
    """What `serve` needs of a core."""

    def __init__(self, step_s: float, config: EngineConfig) -> None:
        self._step_s = step_s
        self._config = config
        self._new: dict[str, float] = {}  # when each was read
        self._left: dict[str, int] = {}
        self._due_s = 0.0
        self._steps = 0

    @property
    def has_work(self) -> bool:
        return bool(self._left or self._new)

    def submit(self, submit: Submit) -> None:
        self._new[submit.request_id] = time.monotonic()
        self._left[submit.request_id] = submit.params.max_tokens or 16

    def cancel(self, request_id: str) -> None:
        self._left.pop(request_id, None)

    def step(self, on_started: Callable[[list[Started]], None] | None = None) -> list[Output]:
        new, self._new = self._new, {}
        if new and on_started is not None:
            on_started([Started(request_id, 0.0) for request_id in new])
        now_s = time.monotonic()
        # New requests are answered at once: what the client sees on top is the server's.
        if now_s < self._due_s:
            return [self._token(each, read_s) for each, read_s in new.items() if each in self._left]
        self._due_s = max(self._due_s + self._step_s, now_s)
        self._steps += 1
        return [self._token(each, new.get(each)) for each in list(self._left)]

    @property
    def idle_s(self) -> float:
        """Until the next step is due; 0 where there is something to say now."""
        return 0.0 if self._new else max(0.0, self._due_s - time.monotonic())

    def _token(self, request_id: str, read_s: float | None) -> Output:
        self._left[request_id] -= 1
        ended = self._left[request_id] <= 0
        if ended:
            del self._left[request_id]
        # 97 to 122: a letter, whatever byte-level tokenizer reads it.
        return Output(
            request_id,
            [97 + self._steps % 26],
            finish_reason="length" if ended else None,
            prefill_s=0.0 if read_s is None else time.monotonic() - read_s,
        )

    def stats(self) -> Stats:
        return Stats(num_running=len(self._left), steps=self._steps)

    def reset_prefix_cache(self) -> int:
        return 0

    def info(self) -> EngineInfo:
        return EngineInfo(
            model_type="mock",
            vocab_size=512,
            max_model_len=MAX_MODEL_LEN,
            block_size=32,
            num_blocks=1 << 20,
            pool_tokens=1 << 25,
            kv_cache_dtype="bf16",
            backend="mock",
            cpu_level="none",
            num_threads=1,
            weight_codec="Q8_0",
            weight_bytes=0,
            kv_bytes=0,
            phases_s={},
        )


class PacedLink(Link):
    """Between two steps it waits for messages instead of looking now and then, so that a request is
    read as soon as it is there."""

    core: MockCore

    def receive(self, *, wait: bool) -> Iterator[bytes]:
        """Payloads that have come until the next step is due; with `wait` at least one."""
        try:
            yield self._arrived.get(timeout=None if wait else self.core.idle_s)
            while True:
                yield self._arrived.get_nowait()
        except Empty:
            return


def main() -> None:
    """Serve until the link ends."""
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    link = PacedLink(socket.socket(fileno=int(arguments["--link-fd"])))
    start = msgspec.json.decode(sys.stdin.buffer.read(), type=Start)
    config = msgspec.json.decode(start.config, type=EngineConfig)
    core = MockCore(float(os.environ.get("HEADRACE_MOCK_STEP_S", "0")), config)
    link.core = core
    link.send([Ready(core.info()), core.stats()])
    serve(cast(Any, core), link)


if __name__ == "__main__":
    main()
