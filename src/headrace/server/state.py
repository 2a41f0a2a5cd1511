"""What the routes share: the model once it is there, metrics, worker threads, clocks and ids."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector

from headrace import __version__
from headrace.config.server_settings import ServerConfig
from headrace.config.settings import EngineConfig
from headrace.engine.messages import Loading
from headrace.engine.process.supervisor_events import EngineRecovered, EngineRestarting, Event
from headrace.http.large_bodies import LargeBodies
from headrace.http.request_id import random_id
from headrace.protocol.body_bounds import DEFAULT_BOUNDS, BodyBounds
from headrace.server.admission.admission import Admission
from headrace.server.admission.drain import Drain
from headrace.server.admission.heap import HeapTrim
from headrace.server.admission.open_calls import OpenCalls
from headrace.server.admission.side_work import SideWork
from headrace.server.api_error import engine_trouble, model_is_loading
from headrace.server.model.served import ServedModel
from headrace.server.observability.tracing import open_tracing
from headrace.server.responses_store.store import ResponsesStore
from headrace.structured.grammar_checks import GrammarChecks
from headrace.telemetry.engine_collector import EngineCollector
from headrace.telemetry.http import HttpMetrics
from headrace.telemetry.requests import RequestMetrics
from headrace.telemetry.server_collector import RecoveryMetrics, ServerCollector

logger = logging.getLogger(__name__)

# Tokenizing and rendering: two at a time leave the other cores to the engine.
WORKERS = 2
# About a millisecond; below it, going to a thread and back costs more than it frees.
PARSED_ON_LOOP_BYTES = 2**17
# Names of unknown fields that are remembered as logged; clients choose them, so there is an end.
LOGGED_NAMES = 1000


def _num_tasks() -> int:
    """Of the loop that asks; 0 outside of one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


@dataclass(frozen=True)
class Serving:
    """A loaded model with the metrics of its requests."""

    model: ServedModel
    requests: RequestMetrics


@dataclass
class ServerState:
    """A server's state, at first without a model; `set_model` once, when it can serve."""

    config: ServerConfig = field(default_factory=ServerConfig)
    """The server's settings."""
    max_num_seqs: int = 64
    """Requests the engine runs at a time."""
    engine_config: EngineConfig | None = None
    """The engine's settings, to be shown."""
    clock: Callable[[], float] = time.perf_counter
    """Seconds that only go forward."""
    wall_clock: Callable[[], float] = time.time
    """Unix time."""
    new_id: Callable[[], str] = random_id
    """A fresh random id."""
    workers: Executor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS, "headrace-text"))
    large_bodies: LargeBodies = field(
        default_factory=lambda: LargeBodies(PARSED_ON_LOOP_BYTES, "headrace-json")
    )
    """Decodes large bodies one at a time, keys in turn."""
    side_work: SideWork = field(default_factory=SideWork)
    grammar_checks: GrammarChecks = field(default_factory=GrammarChecks)
    """Grammars of requests that are known to compile."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    loading: Loading = field(default_factory=Loading)
    """How far the engine is, as long as there is no model."""
    drain: Drain = field(default_factory=Drain)
    """What of the end."""
    open_calls: OpenCalls = field(default_factory=OpenCalls)
    """Calls that have not ended."""
    opened_store: ResponsesStore | None = None
    """The store of responses; None: it is opened with the settings."""
    _serving: Serving | None = None
    _logged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.started_s = self.clock()
        self.http = HttpMetrics(self.registry)
        ProcessCollector(registry=self.registry)
        self.admission = Admission(
            self.config.max_num_queued_reqs,
            self.config.max_num_queued_tokens,
            slots=self.max_num_seqs,
            clock=self.clock,
            by_key=self.config.enable_key_shares and len(set(self.config.api_key)) > 1,
        )
        self.recovery = RecoveryMetrics(self.registry)
        self.registry.register(ServerCollector(self.admission, lambda: self.ready, _num_tasks))
        self.heap = HeapTrim(self.side_work.workers)
        self.responses_store = self.opened_store or ResponsesStore(self.config, self.wall_clock)
        self.tracing = open_tracing(self.config.otlp_traces_endpoint)

    @property
    def ready(self) -> bool:
        """Whether new requests are served: a model, an engine that runs, no end near."""
        serving = self._serving
        return serving is not None and serving.model.engine.status.alive and not self.drain.begun

    @property
    def loaded(self) -> bool:
        """Whether there is a model."""
        return self._serving is not None

    @property
    def model_name(self) -> str:
        """The served name; "" until there is a model."""
        return "" if self._serving is None else self._serving.model.name

    @property
    def uptime_s(self) -> float:
        """Seconds since the server started."""
        return self.clock() - self.started_s

    def set_model(self, model: ServedModel, *, prefix_caching: bool = True) -> None:
        """From now on requests are served with `model`."""
        engine = model.engine
        labels = {"model_name": model.name, "engine": "0"}
        self.registry.register(
            EngineCollector(
                labels=labels,
                facts=lambda: engine.info,
                counts=lambda: engine.stats,
                alive=lambda: engine.status.alive,
                prefix_caching=prefix_caching,
                version=__version__,
                started_s=float(model.created_s),
                queued=lambda: self.admission.num_queued,
            )
        )
        requests = RequestMetrics(
            self.registry,
            labels=labels,
            max_model_len=engine.info.max_model_len,
            clock=self.clock,
        )
        self._serving = Serving(model, requests)

    def engine_event(self, event: Event) -> None:
        """What befell the engine, as its watch tells it: for the metrics."""
        if isinstance(event, EngineRestarting):
            self.recovery.restarted(event.reason)
        elif isinstance(event, EngineRecovered):
            self.recovery.recovered(event.after_s)

    def serving(self) -> Serving:
        """The loaded model; ApiError 503 while it loads."""
        if self._serving is None:
            raise model_is_loading()
        return self._serving

    @property
    def body_bounds(self) -> BodyBounds:
        """What a body may have: as much as the model can use, once there is one."""
        return DEFAULT_BOUNDS if self._serving is None else self._serving.model.body_bounds

    @property
    def engine_retry_s(self) -> float | None:
        """When an engine that does not serve may do so again; None where it serves, or never."""
        return None if self._serving is None else self._serving.model.engine.status.retry_after_s

    def generating(self, key: str) -> Serving:
        """The loaded model, whose engine serves; ApiError 503 while it does not, 429 while the
        queue is full, or the share of this key.

        To be asked before a body is read: what cannot be served is to cost nothing.
        """
        serving = self.serving()
        trouble = engine_trouble(serving.model.engine.status)
        if trouble is not None:
            raise trouble
        self.admission.check_room(key)
        return serving

    def note_ignored(self, names: Iterable[str]) -> None:
        """Log each unknown field once."""
        for name in names:
            if name not in self._logged and len(self._logged) < LOGGED_NAMES:
                self._logged.add(name)
                logger.warning("request field %.64r is unknown and was ignored", name)

    def close(self) -> None:
        """Let the worker threads end; send what is left of traces."""
        self.workers.shutdown(wait=False, cancel_futures=True)
        self.large_bodies.close()
        self.heap.close()
        self.side_work.close()
        self.responses_store.close()
        if self.tracing is not None:
            self.tracing.close()
