"""An engine that answers, and tells of itself what a test wants."""

from __future__ import annotations

import asyncio

from tests.gateway.openai_provider import Answer, answers

METRICS = """\
# HELP vllm:num_requests_running Requests in the running batch.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {kv}
# TYPE process_start_time_seconds gauge
process_start_time_seconds {started}
"""


class ScriptedEngine:
    """served: what its server is given. paths: of the requests it had for metrics."""

    def __init__(self, text: str = "ok") -> None:
        self.waiting = 0.0
        self.running = 0.0
        self.kv = 0.0
        self.started = 1000.0
        self.status = 200
        self.metrics: str | None = None
        self.heads: list[bytes] = []
        self.chats = 0
        self._chat: Answer = answers(text)

    def text(self) -> str:
        """Of /metrics."""
        if self.metrics is not None:
            return self.metrics
        return METRICS.format(
            running=self.running, waiting=self.waiting, kv=self.kv, started=self.started
        )

    async def served(self, number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        """Answers one request."""
        if not request.startswith(b"GET"):
            self.chats += 1
            await self._chat(number, request, writer)
            return
        self.heads.append(request)
        body = self.text().encode()
        head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
