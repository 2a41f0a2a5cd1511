"""What the routes share: the model once it is there, metrics, worker threads, clocks and ids."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from headrace import __version__
from headrace.engine.messages import Loading
from headrace.server.api_error import unavailable
from headrace.server.event_stream import KEEP_ALIVE_S
from headrace.server.pulse import Pulse
from headrace.server.served import ServedModel
from headrace.telemetry.engine_collector import EngineCollector
from headrace.telemetry.http import HttpMetrics
from headrace.telemetry.requests import RequestMetrics

logger = logging.getLogger(__name__)

# Tokenizing and rendering: two at a time leave the other cores to the engine.
WORKERS = 2
# Names of unknown fields that are remembered as logged; clients choose them, so there is an end.
LOGGED_NAMES = 1000


def random_id() -> str:
    """32 hexadecimal digits nobody can guess."""
    return os.urandom(16).hex()


@dataclass(frozen=True)
class Serving:
    """A loaded model with the metrics and the pulse of its engine."""

    model: ServedModel
    requests: RequestMetrics
    pulse: Pulse


@dataclass
class ServerState:
    """Begins without a model; `set_model` once, when it can serve.

    loading: how far the engine is, as long as there is no model.
    clock: seconds that only go forward. wall_clock: Unix time. new_id: a fresh random id.
    """

    clock: Callable[[], float] = time.perf_counter
    wall_clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = random_id
    keep_alive_s: float = KEEP_ALIVE_S
    workers: Executor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS, "headrace-text"))
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    loading: Loading = field(default_factory=Loading)
    _serving: Serving | None = None
    _logged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.started_s = self.clock()
        self.http = HttpMetrics(self.registry)

    @property
    def loaded(self) -> bool:
        """Whether there is a model."""
        return self._serving is not None

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
                facts=engine.info,
                counts=lambda: engine.stats,
                alive=lambda: engine.status.alive,
                prefix_caching=prefix_caching,
                version=__version__,
                started_s=float(model.created_s),
            )
        )
        requests = RequestMetrics(
            self.registry,
            labels=labels,
            max_model_len=engine.info.max_model_len,
            clock=self.clock,
        )
        self._serving = Serving(model, requests, Pulse(self.clock))

    def serving(self) -> Serving:
        """The loaded model; ApiError 503 while it loads."""
        if self._serving is None:
            raise unavailable("the model is loading; try again in a moment", "loading")
        return self._serving

    def note_ignored(self, names: Iterable[str]) -> None:
        """Log each unknown field once."""
        for name in names:
            if name not in self._logged and len(self._logged) < LOGGED_NAMES:
                self._logged.add(name)
                logger.warning("request field %.64r is unknown and was ignored", name)

    def close(self) -> None:
        """Let the worker threads end."""
        self.workers.shutdown(wait=False, cancel_futures=True)
