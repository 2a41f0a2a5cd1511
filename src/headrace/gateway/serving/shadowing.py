"""Sends copies of answered requests to a shadow target; no client waits for them or sees them.

A copy is sent once the real answer is out, so it delays nothing. The gateway's operator pays for
it: its ledger line has the key `shadow` and no budget. Its failures do not count against the
target's breaker or its keys.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.gateway.request_log.visit import RequestLogging
from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.shadow import Shadow
from headrace.gateway.routing.side_effects import acts_at_provider
from headrace.gateway.serving.answering import answer_stream, answer_whole
from headrace.gateway.serving.aside import Aside, aside_entry
from headrace.gateway.serving.attempt import AttemptFailedError, Opened, attempt
from headrace.gateway.serving.bill import cost_nusd
from headrace.gateway.serving.entry import Entry, Outcome
from headrace.gateway.serving.incoming import Incoming, Sink
from headrace.gateway.serving.named import Names
from headrace.gateway.serving.parameter_support import why_skipped
from headrace.gateway.serving.prepared import Prepared, Ready
from headrace.gateway.serving.sent import Sent
from headrace.gateway.serving.tally import Tally
from headrace.gateway.settings.check_traffic import SHADOW_KEY
from headrace.gateway.settings.reliability import Unsupported

logger = logging.getLogger(__name__)

_S_PER_NS = 1e-9


class Told(NamedTuple):
    """An answered request to copy."""

    ask: RoutingQuery
    prepared: Prepared
    incoming: Incoming
    entry: Entry
    number: int
    """Number of the ledger line that the copy gets."""


class Shadows:
    """The copies of a gateway that are under way."""

    def __init__(
        self,
        router: Router,
        *,
        most_reply_bytes: int,
        unsupported: Unsupported,
        clock_ns: Callable[[], int],
        source: random.Random,
        on_entry: Callable[[Entry], None],
        request_log: RequestLogging | None,
    ) -> None:
        self._router = router
        self._most_reply_bytes = most_reply_bytes
        self._unsupported = unsupported
        self._clock_ns = clock_ns
        self._source = source
        self._on_entry = on_entry
        self._request_log = request_log
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, shadow: Shadow, told: Told) -> None:
        """Send a copy if the draw and the target's policy allow it. Never waits."""
        if told.entry.outcome != "answered" or told.entry.cache:
            return
        if shadow.share < 1 and self._source.random() >= shadow.share:
            return
        now_s = self._clock_ns() * _S_PER_NS
        refused = self._router.refuses(shadow.target, told.ask, now_s)
        ready = None if refused else self._ready(shadow, told)
        if ready is None:
            shadow.leave_out()
        elif shadow.begin():
            task = asyncio.ensure_future(self._run(shadow, told, ready))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def under_way(self) -> int:
        """The number of copies under way."""
        return len(self._tasks)

    async def drain(self, within_s: float) -> None:
        """Wait up to `within_s` for copies under way, then end the rest and record their cost."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _ready(self, shadow: Shadow, told: Told) -> Ready | None:
        """The copy; None if it must not be sent twice or the target does not support it."""
        if acts_at_provider(told.incoming.body):
            return None
        try:
            ready = told.prepared.for_target(shadow.target)
        except RequestError:
            return None
        require_parameters = told.ask.wanted.preferences.require_parameters
        why = why_skipped(ready.losses, self._unsupported, require_parameters=require_parameters)
        return ready if why is None else None

    async def _run(self, shadow: Shadow, told: Told, ready: Ready) -> None:
        copy = _Copy(shadow, told, ready, self._clock_ns)
        log = self._request_log
        # As the real request: what is not logged there is not logged here.
        visit = None if log is None else log.visit(told.incoming, _Nowhere())
        try:
            await copy.run(self._most_reply_bytes, _Nowhere() if visit is None else visit.sink)
        except asyncio.CancelledError:
            copy.error = "the gateway was stopped"
            raise
        except Exception:
            # Nobody waits for a shadow, so this error would be seen nowhere else.
            copy.error = "a fault of the gateway"
            logger.exception("the shadow of request %s failed", told.entry.id)
        finally:
            shadow.ended(answered=copy.outcome == "answered")
            entry = copy.entry()
            if entry is not None:
                self._on_entry(entry)
                if visit is not None:
                    visit.ended(entry)


class _Copy:
    """One request to the shadow target."""

    def __init__(
        self, shadow: Shadow, told: Told, ready: Ready, clock_ns: Callable[[], int]
    ) -> None:
        self._shadow = shadow
        self._told = told
        self._ready = ready
        self._clock_ns = clock_ns
        self._sent = Sent(clock_ns)
        self._tally = Tally(told.ask.input_tokens)
        self._opened: Opened | None = None
        self._failed = False
        self.outcome: Outcome = "client_gone"
        self.error = ""

    async def run(self, most_reply_bytes: int, sink: Sink) -> None:
        shadow, told = self._shadow, self._told
        candidate = Candidate(shadow.target, told.ask.wanted.models[0], 0.0, ())
        try:
            async with asyncio.timeout(shadow.timeout_s):
                opened = self._opened = await attempt(
                    candidate,
                    told.prepared,
                    self._ready,
                    stream=told.incoming.stream,
                    most_reply_bytes=most_reply_bytes,
                    most_stream_bytes=most_reply_bytes,
                    clock_ns=self._clock_ns,
                    now_s=self._clock_ns() * _S_PER_NS,
                    sent=self._sent,
                )
                await self._read(opened, sink)
                whole = self._tally.ended and self._tally.failure is None
                self.outcome = "answered" if whole else "cut"
        except TimeoutError:
            self.error = f"no whole answer within {shadow.timeout_s:g} s"
        except AttemptFailedError as error:
            self._failed = True
            logger.info("the shadow of request %s failed: %s", told.entry.id, error.failure.kind)
        finally:
            if self._opened is not None:
                self._opened.reply.abort()

    async def _read(self, opened: Opened, sink: Sink) -> None:
        """Read it to its end, in the client's dialect, so that the log has both answers alike."""
        prepared, incoming = self._told.prepared, self._told.incoming
        names = Names(self._shadow.target.model, incoming.id, int(self._told.entry.at_s))
        if incoming.stream:
            await answer_stream(
                opened, prepared, incoming, sink, self._tally, [], names, self._clock_ns
            )
            return
        await answer_whole(opened, prepared, incoming, sink, self._tally, [], names)

    def entry(self) -> Entry | None:
        """The ledger line; None for a copy that cost nothing: it was not sent, or was refused."""
        sent_ns, opened, told = self._sent.at_ns, self._opened, self._told
        if sent_ns is None or self._failed:
            return None
        usage, usage_from = self._tally.usage
        target = self._shadow.target
        aside = Aside(
            purpose="shadow",
            model=told.entry.model,
            target=target,
            usage=usage,
            usage_from=usage_from,
            cost_nusd=cost_nusd(
                usage,
                target.price,
                self._tally.service_tier,
                asked_tier=self._ready.service_tier,
            ),
            sent_ns=sent_ns,
            first_ns=None if opened is None else opened.first_ns,
            ended_ns=self._clock_ns(),
            outcome=self.outcome,
            stream=told.incoming.stream,
            finish=self._tally.finish,
            error=self.error,
        )
        entry = aside_entry(told.entry, aside, told.number, told.incoming.received_ns)
        return msgspec.structs.replace(
            entry, organisation="", team="", user="", key=SHADOW_KEY, tags=(), variant="",
            assigned="",
        )  # fmt: skip


class _Nowhere:
    """A sink that discards what is written."""

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        pass

    async def write(self, piece: bytes) -> None:
        pass

    async def last(self, piece: bytes) -> None:
        pass

    async def end(self) -> None:
        pass
