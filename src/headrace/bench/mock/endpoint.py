"""The mock endpoint: `async with MockEndpoint(settings) as url`.

Routes requests, numbers them, gives each its plan and its place, and counts what becomes of them.
Listens on loopback unless told otherwise. All of it runs on the event loop that enters it.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from headrace.bench.mock.capacity import Capacity
from headrace.bench.mock.connection import Connection, Received, Work
from headrace.bench.mock.http import whole
from headrace.bench.mock.job import Job, answer_error, refuse
from headrace.bench.mock.metrics import metrics_text
from headrace.bench.mock.plan import Planner
from headrace.bench.mock.reply import Facts
from headrace.bench.mock.request import ROUTES, Route, read_request
from headrace.bench.mock.settings import MockSettings
from headrace.bench.timer import Timer
from headrace.errors import ConfigError, RequestError
from headrace.protocol.openai.models import Model, ModelList

LOOPBACK = "127.0.0.1"
# Connections of a burst that wait to be accepted; the kernel may allow fewer.
_BACKLOG = 4096
# As with hosted endpoints; /health and /metrics are for whoever runs the server, and open.
_KEPT_PATHS = "/v1/"


class MockEndpoint:
    """A server of `settings`, from `async with` to its end; `url` has no path.

    received: the last `keep_requests` requests for a generation or an embedding, in order.
    outcomes: requests by what became of them: "completed", "cancelled" by the client,
    "queue-full", "invalid", "unauthorized", or the fault that they were given.
    """

    def __init__(
        self,
        settings: MockSettings | None = None,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        keep_requests: int = 0,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.settings = settings or MockSettings()
        self.received: deque[Received] = deque(maxlen=keep_requests)
        self.outcomes: Counter[str] = Counter()
        self.prompt_tokens = self.output_tokens = 0
        self._host = host
        self._port = port
        self._tls = tls
        self._clock_ns = clock_ns
        self._planner = Planner(self.settings)
        self._capacity = Capacity(self.settings.capacity, self.settings.max_queued, clock_ns)
        self._connections: set[Connection] = set()
        self._numbered = 0

    @property
    def running(self) -> int:
        """Requests that are worked on."""
        return self._capacity.running

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return self._capacity.waiting

    @property
    def connections(self) -> int:
        """Clients that are connected."""
        return len(self._connections)

    async def __aenter__(self) -> str:
        """Listen; the URL without a path. ConfigError where that address cannot be had."""
        loop = asyncio.get_running_loop()
        self._timer = Timer(loop, self._clock_ns)
        try:
            self._server = await loop.create_server(
                lambda: Connection(self._handle, self._clock_ns, self._connections),
                self._host,
                self._port,
                backlog=_BACKLOG,
                ssl=self._tls,
            )
        except OSError as error:
            self._timer.close()
            raise ConfigError(
                f"--host {self._host} --port {self._port}: cannot listen there: "
                f"{error.strerror or error}; choose another, or --port 0 for a free port"
            ) from error
        host, port = self._server.sockets[0].getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        return self.url

    async def __aexit__(self, *_: object) -> None:
        """Cut all connections and stop listening."""
        self._server.close()
        for connection in tuple(self._connections):
            connection.reset()
        # What aborted connections have to say comes with the next round of the loop.
        await asyncio.sleep(0)
        await self._server.wait_closed()
        self._timer.close()

    def _handle(self, connection: Connection, received: Received) -> Work | None:
        route = ROUTES.get(received.path)
        if received.path.startswith(_KEPT_PATHS) and not self._is_allowed(received):
            self.outcomes["unauthorized"] += route is not None
            answer_error(connection, received, 401, "Incorrect API key provided")
        elif route is None:
            self._handle_other(connection, received)
        elif received.method != "POST":
            answer_error(connection, received, 405, f"{received.path} takes POST")
        else:
            return self._generate(connection, received, route)
        return None

    def _is_allowed(self, received: Received) -> bool:
        key = self.settings.api_key
        given = received.headers.get("authorization", "").removeprefix("Bearer ")
        return key is None or hmac.compare_digest(given.encode(), key.encode())

    def _generate(self, connection: Connection, received: Received, route: Route) -> Work | None:
        self.received.append(received)
        try:
            asked = read_request(route, received.body, self.settings.model)
        except RequestError as error:
            self.outcomes["invalid"] += 1
            answer_error(connection, received, 400, str(error), param=error.param)
            return None
        number = self._numbered
        self._numbered += 1
        if route == "embeddings":
            asked = asked._replace(wanted=asked.wanted._replace(max_tokens=1), stream=False)
        plan = self._planner.plan(number, asked.wanted, role=route == "chat")
        retry_after_s = self.settings.retry_after_s
        if plan.fault is not None and refuse(connection, received, plan.fault, retry_after_s):
            self.outcomes[plan.fault] += 1
            return None
        job = Job(
            connection,
            received,
            asked,
            plan,
            lambda queue_ns: Facts(f"mock-{number}", int(time.time()), queue_ns),
            self.settings,
            self._timer,
            self._clock_ns,
            self._ended,
        )
        if not self._capacity.enter(job, received.received_ns):
            self.outcomes["queue-full"] += 1
            message = f"{self.waiting} requests are waiting already, the maximum"
            answer_error(connection, received, 429, message, retry_after_s)
            return None
        return job

    def _ended(self, job: Job, fault: str | None) -> None:
        self.outcomes[fault or "completed"] += 1
        if fault is None:
            self.prompt_tokens += job.asked.wanted.prompt_tokens
            self.output_tokens += job.plan.output_tokens
        self._capacity.leave(job)

    def _handle_other(self, connection: Connection, received: Received) -> None:
        if received.method != "GET":
            answer_error(connection, received, 404, f"{received.path} does not exist")
            return
        text = "text/plain; version=0.0.4; charset=utf-8"
        if received.path == "/health":
            reply = whole(200, b"", keep_alive=received.keep_alive)
        elif received.path == "/metrics":
            body = metrics_text(self).encode()
            reply = whole(200, body, content_type=text, keep_alive=received.keep_alive)
        elif received.path == "/v1/models":
            models = ModelList(data=[Model(id=self.settings.model, owned_by="headrace-mock")])
            body = msgspec.json.encode(models)
            reply = whole(200, body, keep_alive=received.keep_alive)
        else:
            answer_error(connection, received, 404, f"{received.path} does not exist")
            return
        connection.write(reply)
        connection.done(keep_alive=received.keep_alive)
