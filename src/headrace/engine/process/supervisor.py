"""SupervisedEngine: an engine that is watched, and started again when it dies or hangs.

It is EngineClient with a successor. When a process ends, its loop fails, it sends garbage or it
says nothing for too long, its open streams end at once with EngineDeadError, it is killed if it is
still there, and another is started: the first at once, the next after growing waits, so many in a
row at most. Then it is given up, until somebody asks for a `restart`. Between two engines requests
are refused with EngineRestartingError. Clock, sleep and random source are handed in.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

from headrace.config.settings import EngineConfig
from headrace.engine.messages import EngineInfo, Loading, Output, Stats, Submit
from headrace.engine.process.client import EngineClient
from headrace.engine.process.status import EngineStatus
from headrace.engine.process.supervisor_events import (
    EngineFell,
    EngineGivenUp,
    EngineRecovered,
    EngineRestarting,
    Event,
    Reason,
    Supervision,
)
from headrace.errors import EngineDeadError, EngineRestartingError, HeadraceError

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""A ping costs an idle engine some 50 µs, so one a second is nothing."""

LOOKS_PER_STALL = 5
"""At least so many looks within the stall timeout, however short it is."""

SETTLED_S = 600.0
"""An engine that served for so long did not fail of what its predecessor failed of."""

YOUNG_S = 5.0
"""Waits grow while engines fail within so long; one that served for longer has its successor at
once, because waiting would not help."""

FIRST_WAIT_S, MOST_WAIT_S = 0.5, 30.0
"""After the first engine that failed young, which doubles; after any later one."""

REMEMBERED = 1000
"""Recoveries whose time is kept; enough for any percentile people ask for."""


class SupervisedEngine:
    """The latest engine process and its watch. Made by `start`; used from one event loop."""

    def __init__(self, config: EngineConfig, supervision: Supervision) -> None:
        self.restarts: dict[Reason, int] = {
            "died": 0,
            "stalled": 0,
            "failed_to_load": 0,
            "requested": 0,
        }
        """Attempts to start another, by why; totals since the first start."""
        self.recoveries_s: deque[float] = deque(maxlen=REMEMBERED)
        """How long each of the last recoveries took, from the fall until it served again."""
        self._config = config
        self._how = supervision
        self._rng = supervision.rng or random.Random()
        self._client: EngineClient
        self._state: Literal["ready", "stalled", "restarting", "failed"] = "restarting"
        self._failure = ""
        self._in_a_row = 0
        self._failed_young = 0
        self._silent_s = 0.0
        self._load_s = 0.0
        self._due_s = 0.0
        self._watch: asyncio.Task[None] | None = None
        self._asked = ""  # why somebody wants another engine, until the watch has seen to it
        self._closed = False

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        supervision: Supervision | None = None,
        *,
        on_loading: Callable[[Loading], None] | None = None,
    ) -> SupervisedEngine:
        """Start the first engine, wait until it can serve, and watch it from then on.

        Raises HeadraceError where it cannot: what fails at once would fail again. Cancelling ends
        it.
        """
        engine = cls(config, supervision or Supervision())
        await engine._load(on_loading)
        engine._watch = asyncio.get_running_loop().create_task(engine._supervise())
        return engine

    @property
    def info(self) -> EngineInfo:
        """What the latest engine said of itself when it became ready."""
        return self._client.info

    @property
    def stats(self) -> Stats:
        """The latest that the latest engine sent."""
        return self._client.stats

    @property
    def pid(self) -> int:
        """Of the latest engine's process."""
        return self._client.pid

    @property
    def status(self) -> EngineStatus:
        """What the engine does now."""
        state = self._state
        failure = self._failure
        if state == "ready" and not self._client.alive:
            # It fell a moment ago; the watch has not been at it yet.
            more = bool(self._asked) or self._in_a_row < self._how.max_restarts
            state = "restarting" if more else "failed"
            failure = self._client.failure or "the engine process is gone"
        return EngineStatus(
            state,
            restarts=sum(self.restarts.values()),
            failure=failure,
            retry_after_s=self._until_ready_s() if state in ("stalled", "restarting") else None,
            silent_s=self._silent_s,
        )

    def generate(
        self, submit: Submit, *, on_started: Callable[[float], None] | None = None
    ) -> AsyncGenerator[Output, None]:
        """As EngineClient.generate; EngineRestartingError while there is none and one will be."""
        self._check()
        return self._client.generate(submit, on_started=on_started)

    async def reset_prefix_cache(self) -> int:
        """As EngineClient.reset_prefix_cache; EngineRestartingError as `generate`."""
        self._check()
        return await self._client.reset_prefix_cache()

    async def restart(self, reason: str) -> None:
        """End the engine at once and have another started, also one that was given up.

        Open streams raise EngineDeadError with `reason`. Returns as soon as the old process is
        gone; attempts in a row are counted anew. Raises EngineRestartingError while another is
        being started anyway, EngineDeadError after `close`.
        """
        if self._closed:
            raise EngineDeadError(self._failure)
        given_up = self._state == "failed"
        if not given_up:
            self._check()
        self._asked = reason
        if given_up and (self._watch is None or self._watch.done()):
            self._state, self._failure = "restarting", reason
            self._watch = asyncio.get_running_loop().create_task(self._supervise())
        await self._client.kill(reason)

    async def close(self) -> None:
        """End the watch and the engine, or the loading of one. Idempotent."""
        self._closed = True
        self._state, self._failure = "failed", "the engine was closed"
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._client.close()

    def _check(self) -> None:
        status = self.status
        if status.state == "failed":
            raise EngineDeadError(status.failure)
        if not status.alive:
            wait_s = status.retry_after_s or 0.0
            raise EngineRestartingError(
                f"the engine has ended and is being restarted ({status.failure}); try again "
                f"in {max(1.0, wait_s):.0f} s",
                retry_after_s=wait_s,
            )

    def _until_ready_s(self) -> float:
        """A guess: the wait that is left, and what loading took the last time."""
        return max(0.0, self._due_s + self._load_s - self._how.clock())

    async def _supervise(self) -> None:
        try:
            while True:
                ready_s = self._how.clock()
                fall = await self._fall_of(self._client)
                fell_s = self._how.clock()
                if fell_s - ready_s >= SETTLED_S:
                    self._in_a_row = 0
                if fell_s - ready_s >= YOUNG_S:
                    self._failed_young = 0
                if not await self._replace(fall, fell_s):
                    return
        except Exception as error:
            # Of a task nobody joins: without it the state would say "restarting" for ever.
            logger.exception("the watch of the engine failed")
            self._give_up(f"the watch of the engine failed: {type(error).__name__}: {error}")
            await self._client.kill(self._failure)

    async def _fall_of(self, client: EngineClient) -> EngineFell:
        """Watch until it serves no more; its process is gone then, and its streams have ended."""
        if await self._heard_until(client.ended, lambda: client.heartbeats, client.ping):
            reason: Reason = "requested" if self._asked else "died"
            self._state, self._failure = "restarting", client.failure
        else:
            reason = "stalled"
            self._state, self._failure = "stalled", f"the engine {self._silence()}"
        self._due_s = self._how.clock()
        await client.kill(self._failure)
        self._silent_s = 0.0
        if reason == "requested":
            self._failure = self._asked
            logger.warning("a restart of the engine was requested: %s", self._asked)
        else:
            logger.error("the engine %s: %s", reason, self._failure)
        return self._tell_fall(reason)

    async def _heard_until(
        self, end: asyncio.Future[Any], heartbeats: Callable[[], int], ping: Callable[[], None]
    ) -> bool:
        """Look for heartbeats until `end` is done (True), or there were none for too long (False).

        Silence is counted in looks, so that a loop of ours that stood still does not blame the
        engine for what it could not hear.
        """
        clock, limit_s = self._how.clock, self._how.stall_timeout_s
        every_s = min(LOOK_EVERY_S, limit_s / LOOKS_PER_STALL)
        heard, last_s = heartbeats(), clock()
        self._silent_s = 0.0
        while not end.done():
            ping()
            await self._pause(every_s, end)
            now_s, heard_now = clock(), heartbeats()
            silent_s = self._silent_s + min(now_s - last_s, 2 * every_s)
            self._silent_s = silent_s if heard_now == heard else 0.0
            heard, last_s = heard_now, now_s
            if self._silent_s >= limit_s and not end.done():
                return False
        self._silent_s = 0.0
        return True

    def _silence(self) -> str:
        return (
            f"sent nothing for {self._silent_s:.1f} s; the limit is "
            f"{self._how.stall_timeout_s:g} s (--engine-stall-timeout)"
        )

    async def _pause(self, seconds: float, end: asyncio.Future[Any]) -> None:
        """Sleep, but not beyond `end`."""
        nap = asyncio.ensure_future(self._how.sleep(seconds))
        both: set[asyncio.Future[Any]] = {nap, end}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()

    async def _replace(self, fall: EngineFell, fell_s: float) -> bool:
        """Start engines until one serves; False where so many in a row did not."""
        limit = self._how.max_restarts
        while self._asked or self._in_a_row < limit:
            if self._asked:
                self._asked, wait_s = "", 0.0
                self._in_a_row = self._failed_young = 0
            else:
                wait_s = self._wait_s()
                self._in_a_row += 1
                self._failed_young += 1
            self.restarts[fall.reason] += 1
            self._state = "restarting"
            self._due_s = self._how.clock() + wait_s
            if self._in_a_row:
                logger.warning(
                    "restarting the engine in %.1f s: restart %d of %d in a row",
                    wait_s,
                    self._in_a_row,
                    limit,
                )
            self._tell(EngineRestarting(fall.reason, self._in_a_row, limit, wait_s))
            await self._how.sleep(wait_s)
            try:
                await self._load(None)
            except HeadraceError as error:
                self._failure = str(error)
                logger.error("the engine could not be started: %s", error)
                fall = self._tell_fall("failed_to_load")
                continue
            after_s = self._how.clock() - fell_s
            self.recoveries_s.append(after_s)
            logger.warning("the engine serves again, %.2f s after it ended", after_s)
            self._tell(EngineRecovered(after_s))
            return True
        self._give_up(self._failure)
        return False

    async def _load(self, on_loading: Callable[[Loading], None] | None) -> None:
        """Start an engine that serves from then on; HeadraceError where it cannot."""
        began_s = self._how.clock()
        heartbeats = 0

        def heard(at: Loading) -> None:
            nonlocal heartbeats
            heartbeats += 1
            if on_loading is not None:
                on_loading(at)

        launching = asyncio.ensure_future(self._how.launch(self._config, on_loading=heard))
        try:
            if not await self._heard_until(launching, lambda: heartbeats, lambda: None):
                raise HeadraceError(f"loading stalled: the engine {self._silence()}")
            self._client = launching.result()
        except OSError as error:
            raise HeadraceError(f"no engine process can be started: {error}") from error
        except BaseException:
            launching.cancel()
            await asyncio.gather(launching, return_exceptions=True)
            if not launching.cancelled() and launching.exception() is None:
                await launching.result().close()
            raise
        self._load_s = self._how.clock() - began_s
        self._state = "ready"

    def _wait_s(self) -> float:
        """Before the next attempt; spread out, so that machines do not load in step."""
        if self._failed_young == 0:
            return 0.0
        doublings = min(self._failed_young - 1, 10)  # far beyond the bound, and a float
        most_s = min(MOST_WAIT_S, FIRST_WAIT_S * 2.0**doublings)
        return most_s * self._rng.uniform(0.5, 1.0)

    def _give_up(self, failure: str) -> None:
        self._state, self._failure = "failed", failure
        logger.critical(
            "the engine is given up after %d restart%s in a row, and every request is "
            "answered with 503 until POST /admin/restart_engine or a restart of the server: "
            "%s",
            self._in_a_row,
            "" if self._in_a_row == 1 else "s",
            failure,
        )
        self._tell(EngineGivenUp(failure))

    def _tell_fall(self, reason: Reason) -> EngineFell:
        fall = EngineFell(reason, self._failure)
        self._tell(fall)
        return fall

    def _tell(self, event: Event) -> None:
        if self._how.on_event is not None:
            self._how.on_event(event)
