"""How a request for a composed model is served: the calls before the answer, and the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from headrace.gateway.routing.complexity.choice import Classifier
from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.composed.accept import NO_ANSWER, verdict_of
from headrace.gateway.serving.composed.heartbeat import Heartbeats
from headrace.gateway.serving.composed.inside import Answered, Inside
from headrace.gateway.serving.composed.logprobs import alternatives_wanted
from headrace.gateway.serving.composed.most import NOTHING, Most
from headrace.gateway.serving.composed.note import draft_note, with_note
from headrace.gateway.serving.composed.stage_prepared import StagePrepared, hidden
from headrace.gateway.serving.dispatch import Dispatch
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.incoming import Sink
from headrace.gateway.serving.prepared import Prepared
from headrace.gateway.serving.reply_headers import PREFIX, REQUEST_ID, visible
from headrace.gateway.settings.cascade import AcceptSettings, StageSettings
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import replayed


class Find(Protocol):
    """A function that gets a target's answer, as for any request."""

    def __call__(
        self, ask: RoutingQuery, prepared: Prepared | None
    ) -> Awaitable[tuple[Opened, Dispatch]]:
        """Open an answer; `prepared` None means the client's own. Raises as `Dispatch.open`."""


@dataclass(slots=True)
class Way:
    """The plan of a request for a composed model; this one calls nothing before the answer."""

    ask: RoutingQuery
    """The routing query of the model that answers in the end."""
    inside: Inside
    told: list[str] = field(default_factory=list)
    """Decisions made so far, for a header."""
    besides: Most = NOTHING
    """The most that is used in addition to the answer."""
    heartbeat_s: float | None = None
    """Interval of keep-alive events in a stream that waits; None if nothing is held back."""

    @property
    def may_answer(self) -> tuple[Candidate, ...]:
        """Targets that may answer in the end, now or once they are healthy again."""
        return tuple(self.inside.router.could_ask(self.ask.wanted.models, self.ask))

    def leave_out_free(self, why: tuple[str, float | None]) -> None:
        """Leave out targets that are free of charge. `why`: see `RoutingQuery.no_free`."""
        self.ask = self.ask._replace(no_free=why)
        self.inside.ask = self.inside.ask._replace(no_free=why)

    async def open(self, find: Find) -> tuple[Opened, Dispatch]:
        """The answer to send, and the dispatch that found it. Raises as `Dispatch.open`."""
        return await find(self.ask, None)

    async def answer(self, find: Find, sink: Sink) -> tuple[Opened, Dispatch]:
        """As `open`, with keep-alive events if the sink is Heartbeats."""
        if not isinstance(sink, Heartbeats):
            return await self.open(find)
        async with sink:
            return await self.open(find)

    def heartbeats(self, sink: Sink, prepared: Prepared) -> Sink:
        """The sink for a stream that may have to wait."""
        incoming = self.inside.incoming
        if self.heartbeat_s is None or not incoming.stream:
            return sink
        head = [
            ("content-type", incoming.side.stream_type()),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
            (REQUEST_ID, incoming.id),
        ]
        beat = incoming.side.stream_writer(prepared.stub).keep_alive()
        return Heartbeats(sink, head, beat, self.heartbeat_s)

    def entry(self, entry: Entry, opened: Opened | None) -> Entry:
        """The ledger line with the model that answered, unless an A/B variant is recorded."""
        if opened is None or entry.variant:
            return entry
        return msgspec.structs.replace(entry, variant=opened.candidate.model)

    def headers(self) -> list[tuple[str, str]]:
        """The header that tells the client what was decided."""
        return [(PREFIX + "route", visible("; ".join(self.told)))] if self.told else []


@dataclass(slots=True)
class RoutedWay(Way):
    """A plan in which a router model is called first; `route` calls it and returns its plan."""

    route: Callable[[], Awaitable[Way]] | None = None

    async def open(self, find: Find) -> tuple[Opened, Dispatch]:
        """See Way."""
        assert self.route is not None
        found = await self.route()
        self.told += found.told
        found.told = self.told
        self.ask = found.ask
        return await found.open(find)


@dataclass(slots=True)
class StagedWay(Way):
    """A plan in which stages are called before the model that answers in any case."""

    stages: tuple[StageSettings, ...] = ()
    accept: AcceptSettings | None = None
    call: ChatCall | None = None
    classifier: Classifier | None = None
    gives_draft: bool = False
    speculative: bool = False

    async def open(self, find: Find) -> tuple[Opened, Dispatch]:
        """See Way."""
        if self.speculative:
            return await self._beside(find)
        prepared: Prepared | None = None
        for stage in self.stages:
            answered, accepted = await self._stage(stage)
            if answered is None:
                continue
            if accepted:
                return self._told(answered), answered.dispatch
            self.inside.aside(answered, "stage", self.told[-1])
            if self.gives_draft and answered.text:
                noted = with_note(self.inside.incoming, draft_note(answered.text))
                prepared = Prepared(noted)
        return await find(self.ask, prepared)

    async def _beside(self, find: Find) -> tuple[Opened, Dispatch]:
        """Call the last model at once; a draft that is accepted ends it."""
        last = asyncio.ensure_future(find(self.ask, None))
        accepted: Answered | None = None
        told = False
        try:
            for stage in self.stages:
                answered, is_good = await self._stage(stage)
                if answered is not None and is_good:
                    accepted = answered
                    break
                if answered is not None:
                    self.inside.aside(answered, "stage", self.told[-1])
            if accepted is None:
                found = await asyncio.shield(last)
                told = True
                return found
            await self._cut(last, "another answer was accepted")
            told = True
            return self._told(accepted), accepted.dispatch
        finally:
            if not told:
                await self._cut(last, "no longer needed")
                if accepted is not None:
                    self.inside.aside(accepted, "stage", "no longer needed")

    async def _cut(self, last: asyncio.Future[tuple[Opened, Dispatch]], error: str) -> None:
        model = self.ask.wanted.models[0]
        was_running = not last.done()
        last.cancel()
        try:
            opened, _ = await last
        except asyncio.CancelledError:
            if was_running and self.inside.last is not None:
                self.inside.cut_unanswered(self.inside.last, model, error)
        except Exception as error:  # it failed, and is no longer needed
            _ = error
        else:
            self.inside.cut(opened, model)

    async def _stage(self, stage: StageSettings) -> tuple[Answered | None, bool]:
        accept, call = self.accept, self.call
        assert accept is not None
        assert call is not None
        wanted = alternatives_wanted(accept.logprobs) if accept.by == "logprobs" else 0
        prepared = StagePrepared(self.inside.incoming, wanted)
        try:
            answered = await self.inside.answer(
                stage.model, prepared, stage.timeout_s, input_tokens=self.ask.input_tokens
            )
        except TimeoutError:
            self.told.append(f"{stage.model}: no answer in {stage.timeout_s:g} s")
            return None, False
        except NO_ANSWER:
            self.told.append(f"{stage.model}: no answer")
            return None, False
        try:
            verdict = await verdict_of(answered, call, self.inside, accept, self.classifier)
        except BaseException:  # the client has gone, or the time for all of it is over
            self.inside.aside(answered, "stage", "no longer needed")
            raise
        self.told.append(f"{stage.model}: {verdict.said}")
        return answered, verdict.accepted

    def _told(self, answered: Answered) -> Opened:
        """The answer as the client gets it: without unrequested fields, as a stream if it wants."""
        opened, incoming = answered.opened, self.inside.incoming
        accept = self.accept
        assert accept is not None
        if accept.by == "logprobs" and hidden(self.call, 1):
            bare = msgspec.structs.replace(
                answered.reply,
                choices=tuple(
                    msgspec.structs.replace(choice, logprobs=None)
                    for choice in answered.reply.choices
                ),
            )
            opened.answer, opened.glance = bare, None
            opened.ready = opened.ready._replace(passed_on=False)
        if incoming.stream:
            opened.events = list(replayed(opened.read()))
        return opened
