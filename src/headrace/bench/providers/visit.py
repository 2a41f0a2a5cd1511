"""One provider's part of a round: requests one after another, then as many at once.

Connections are made before either, so that a TTFT holds no handshake. Nobody is flooded who does
not answer: a request that gets no reply at all, or whose key is refused, ends the visit, and
without one success the batch is not sent. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from headrace.bench.client.decode import Asked, decode
from headrace.bench.client.endpoints import Endpoint, HttpRequest, build_request
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.load_client import LoadClient
from headrace.bench.client.raw import RawReply
from headrace.bench.client.refused_field import Remedy, refused_field
from headrace.bench.load.health import LoopWatch
from headrace.bench.providers.prompts import RoundPrompts
from headrace.bench.record import ClientHealth, Failure, RequestRecord
from headrace.bench.timer import Timer
from headrace.bench.workload import WorkItem

Outcome = Literal[
    "complete",  # all was sent, whatever came back
    "failing",  # no request alone succeeded: there was no batch
    "unreachable",  # no reply at all
    "refused",  # the key
    "interrupted",  # the run ended first
    "paused",  # refused in an earlier round: nothing was sent
]

REFUSED_STATUSES = (401, 403)
# A request that was about to be sent when the visit was stopped is caught in a later round.
_CUT_AGAIN_S = 0.02


class Visit(NamedTuple):
    """The result of one visit to a provider. Times of records count from the visit's start."""

    outcome: Outcome
    single: tuple[RequestRecord, ...] = ()
    batch: tuple[RequestRecord, ...] = ()
    health: ClientHealth = ClientHealth(schedule_lag_ns=(), loop_lag_ns=(), cpu_share=())

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Of both phases."""
        return self.single + self.batch

    @property
    def message(self) -> str:
        """What the first failure said; empty without one."""
        failures = [one.failure.message for one in self.records if one.failure is not None]
        return failures[0] if failures else ""

    @property
    def remedy(self) -> Remedy | None:
        """Of the first request that was refused for a field that another could stand for."""
        failed = [(one.status, one.failure) for one in self.records if one.failure is not None]
        found = (refused_field(status, failure.message) for status, failure in failed)
        return next((remedy for remedy in found if remedy is not None), None)


class Visitor:
    """A visitor of `endpoint`, once; `stop` ends it early. Made on a running event loop."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_s: float,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._clock_ns = clock_ns
        self._stopped = False
        self._client: LoadClient | None = None
        self._opening: asyncio.Task[Failure | None] | None = None

    async def run(self, prompts: RoundPrompts) -> Visit:
        """Send all of it. Raises ConfigError for a prompt that the endpoint cannot take."""
        single = [build_request(self._endpoint, item.prompt) for item in prompts.single]
        batch = [build_request(self._endpoint, item.prompt) for item in prompts.batch]
        limits = ClientLimits(max_connections=len(batch), request_timeout_s=self._timeout_s)
        client = LoadClient(single[0].origin, limits, clock_ns=self._clock_ns)
        self._client = client
        timer = Timer(asyncio.get_running_loop(), self._clock_ns)
        watch = LoopWatch(timer, self._clock_ns)
        # Collections while streams are open look at none of what is there now.
        gc.collect()
        caller_froze = gc.get_freeze_count() > 0
        gc.freeze()
        self._origin_ns = self._clock_ns()
        watch.start()
        try:
            alone, outcome = await self._one_by_one(client, prompts.single, single)
            together: tuple[RequestRecord, ...] = ()
            if outcome == "complete":
                await self._open(client, len(batch))
                together, outcome = await self._at_once(client, prompts.batch, batch)
        finally:
            if not caller_froze:  # what a caller froze stays frozen
                gc.unfreeze()
            watch.stop()
            timer.close()
            await client.close()
        share = watch.cpu_share
        health = ClientHealth(
            schedule_lag_ns=(),
            loop_lag_ns=tuple(watch.lags_ns),
            cpu_share=() if share is None else (share,),
        )
        return Visit(outcome, alone, together, health)

    def stop(self) -> None:
        """End what is on its way and send nothing more."""
        self._stopped = True
        if self._opening is not None:
            self._opening.cancel()
        if self._client is not None:
            self._client.cancel_all()
            asyncio.get_running_loop().call_later(_CUT_AGAIN_S, self._client.cancel_all)

    async def _open(self, client: LoadClient, connections: int) -> Failure | None:
        """Have connections ready; why not, where one cannot be made. Stopping ends it at once."""
        self._opening = asyncio.create_task(client.open(connections))
        await asyncio.wait([self._opening])
        opening, self._opening = self._opening, None
        return None if opening.cancelled() else opening.result()

    async def _one_by_one(
        self, client: LoadClient, items: Sequence[WorkItem], requests: Sequence[HttpRequest]
    ) -> tuple[tuple[RequestRecord, ...], Outcome]:
        begun_ns = self._clock_ns()
        failure = None if self._stopped else await self._open(client, 1)
        if failure is not None and not self._stopped:
            nothing = RawReply(begun_ns=begun_ns, end_ns=self._clock_ns(), failure=failure)
            return (self._record(0, items[0], requests[0], nothing, begun_ns),), "unreachable"
        records: list[RequestRecord] = []
        for at, (item, request) in enumerate(zip(items, requests, strict=True)):
            if self._stopped:
                return tuple(records), "interrupted"
            raw = await client.send(request)
            # Its time had come when the one before it had ended.
            records.append(self._record(at, item, request, raw, raw.begun_ns))
            if self._stopped:
                return tuple(records), "interrupted"
            if raw.status is None:
                return tuple(records), "unreachable"
            if raw.status in REFUSED_STATUSES:
                return tuple(records), "refused"
        good = any(one.failure is None for one in records)
        return tuple(records), "complete" if good else "failing"

    async def _at_once(
        self, client: LoadClient, items: Sequence[WorkItem], requests: Sequence[HttpRequest]
    ) -> tuple[tuple[RequestRecord, ...], Outcome]:
        if self._stopped:
            return (), "interrupted"
        intended_ns = self._clock_ns()
        replies = await asyncio.gather(*[client.send(request) for request in requests])
        records = tuple(
            self._record(at, item, request, raw, intended_ns)
            for at, (item, request, raw) in enumerate(zip(items, requests, replies, strict=True))
        )
        return records, "interrupted" if self._stopped else "complete"

    def _record(
        self, at: int, item: WorkItem, request: HttpRequest, raw: RawReply, intended_ns: int
    ) -> RequestRecord:
        asked = Asked(
            index=at,
            intended_ns=intended_ns - self._origin_ns,
            prompt_tokens_asked=item.prompt_tokens_asked,
            output_tokens_asked=item.output_tokens_asked,
        )
        return decode(
            raw,
            asked,
            kind=self._endpoint.kind,
            stream=request.stream,
            origin_ns=self._origin_ns,
            secrets=self._endpoint.secrets,
        )
