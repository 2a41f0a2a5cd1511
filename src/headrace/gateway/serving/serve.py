"""A request from its arrival to the ledger's line: the one place that knows the whole order.

First the most it may use is held; then a target is found; then its answer is sent; then what it
used is settled. Whatever happens, a line is written and the rest of the hold is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from headrace.errors import RequestError
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.guards.action import FIELD, GuardBlockedError
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.route import Route
from headrace.gateway.serving.answering import (
    answer_failed,
    answer_stream,
    answer_whole,
    has_begun,
    tell_failed,
)
from headrace.gateway.serving.aside import Aside, aside_entry
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.cached import AtCache
from headrace.gateway.serving.demanded import demand_at
from headrace.gateway.serving.dispatch import Dispatch
from headrace.gateway.serving.ending import Bill, bill_of, sent_as, settled
from headrace.gateway.serving.entry import Entry, Outcome
from headrace.gateway.serving.error_detail import detail_for
from headrace.gateway.serving.free_tier import FreeHold
from headrace.gateway.serving.holding import Holding
from headrace.gateway.serving.incoming import ClientGoneError, Incoming, Sink
from headrace.gateway.serving.line import line_of
from headrace.gateway.serving.named import Names
from headrace.gateway.serving.prepared import Prepared, asked_service_tier
from headrace.gateway.serving.rate import note_opened, note_rate
from headrace.gateway.serving.read_on import read_on
from headrace.gateway.serving.refusals import refused
from headrace.gateway.serving.reply_headers import told_headers
from headrace.gateway.serving.routing_query import query_for
from headrace.gateway.serving.serving import Serving
from headrace.gateway.serving.stored import check_asked, telling
from headrace.gateway.serving.tally import Tally
from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.gateway.serving.traffic import RequestTraffic, hedging_of, most_hedges
from headrace.gateway.telemetry.tracing import Moment
from headrace.gateway.within import Within
from headrace.protocol.neutral.failure import Failure

if TYPE_CHECKING:  # imported only where the configuration uses them
    from headrace.gateway.serving.composed.way import Way
    from headrace.gateway.serving.guarded import Guarded

logger = logging.getLogger(__name__)

_S_PER_NS = 1e-9


async def serve(serving: Serving, incoming: Incoming, sink: Sink) -> Entry:
    """Answer a request. Cancel it when the client leaves: what came until then is billed."""
    course = _Course(serving, incoming, sink)
    try:
        await course.run()
    except asyncio.CancelledError:
        course.outcome = "client_gone"
        await asyncio.shield(course.close())
        raise
    except Exception:
        # A fault of the gateway ends this request and no other.
        logger.exception("request %s failed", incoming.id)
        await course.fail()
    await course.close()
    assert course.entry is not None
    return course.entry


class _Course:
    """The state of one request."""

    def __init__(self, serving: Serving, incoming: Incoming, sink: Sink) -> None:
        self._serving = serving
        self._incoming = incoming
        log = serving.request_log
        self._visit = None if log is None else log.visit(incoming, sink)
        self._sink = sink if self._visit is None else self._visit.sink
        self._prepared = Prepared(incoming)
        self._at_cache = AtCache(serving.cache, incoming, self._prepared, serving.clock_ns)
        self._arrived_s = serving.wall_s()
        arrived = Moment(int(self._arrived_s * 1e9), incoming.received_ns, serving.clock_ns)
        self._detail = detail_for(serving.error_detail, incoming.caller)
        self._trace = serving.tracing.began(incoming, arrived)
        self._holding = Holding(serving.accounts, incoming.caller)
        self._free: FreeHold | None = None
        self._opened: Opened | None = None
        self._dispatch: Dispatch | None = None
        self._tally: Tally | None = None
        self._bill: Bill | None = None
        self._input_tokens = 0
        self._status = 0
        self._guarded: Guarded | None = None
        self.outcome: Outcome = "failed"
        self.error = ""
        self._traffic = RequestTraffic()
        self._way: Way | None = None
        self.asides: list[Aside] = []
        self.entry: Entry | None = None

    async def fail(self) -> None:
        """Turn a fault of the gateway into a 500, or into the end of a reply that has begun."""
        self.outcome, self.error = "failed", "a fault of the gateway"
        if not self._status:
            failure = Failure(kind="server", message=self.error, code="internal_error")
            await self._refuse(500, failure, "failed")

    async def run(self) -> None:
        """Everything except settling."""
        try:
            router = self._serving.router
            ask = await query_for(self._incoming, router, self._serving.large_bodies)
            await check_asked(self._serving, self._incoming, ask)
            if self._is_guarded():
                ask = await self._pass_guardrails(ask)
            self._input_tokens = ask.input_tokens
            if (ways := self._serving.ways) is not None:
                holding = self._holding
                self._way = ways.way(ask, self._prepared, self._incoming, self.asides, holding)
            way = self._way
            decision = router.decide(ask if way is None else way.ask, self._now_s())
            ask = self._traffic.takes_side(ask, decision, router)
            if await self._at_cache.find(ask, router):
                self._holding.keep(await self._at_cache.hold(self._serving.accounts, ask, router))
                await self._tell_again()
                return
            if (tier := self._serving.free_tier) is not None:
                self._free = await tier.hold(router, ask, decision, self._incoming, way)
                ask, decision = self._free.ask, self._free.decision
            await self._hold(ask, decision)
            route = router.route(ask.wanted.models[0])
            assert route is not None
            self._traffic.goes(route, ask)
            with Within(self._left_s(route)):
                if self._at_cache.looks_further and await self._at_cache.find_further():
                    await self._tell_again()
                    return
                if way is None:
                    opened = self._opened = await self._find(ask, decision, route)
                else:
                    opened = self._opened = await self._go(way)
                self._status = 200
                self._tally = self._at_cache.tally(self._input_tokens, opened)
                await self._answer(opened, self._tally)
        except ClientGoneError:
            self.outcome = "client_gone"
        except TimeoutError:
            await self._out_of_time()
        except GuardBlockedError as error:
            await self._block(error)
        except (RequestError, AccountsError, AllTargetsFailedError) as error:
            if self._status:
                raise
            await self._refuse(*refused(error, self._incoming.side.name, self._detail))

    def _is_guarded(self) -> bool:
        """Whether guardrails or configured prompts apply; to most requests they do not."""
        asks = FIELD in self._incoming.body or bool(self._incoming.prompt)
        return asks or self._serving.guardrails is not None

    async def _pass_guardrails(self, ask: RoutingQuery) -> RoutingQuery:
        """Apply guardrails; the request goes on as they leave it."""
        serving = self._serving
        from headrace.gateway.serving.guarded import Guarded

        guarded = Guarded(serving.guardrails, self._incoming, self._sink, serving.clock_ns)
        self._guarded = guarded
        try:
            await guarded.look(ask, serving.router)
        finally:
            self._sink = guarded.sink
        if guarded.incoming is self._incoming:
            return ask
        incoming = self._incoming = guarded.incoming
        if self._visit is not None:
            self._visit.asks(incoming)
        self._prepared = Prepared(incoming)
        self._at_cache = AtCache(serving.cache, incoming, self._prepared, serving.clock_ns)
        return await query_for(incoming, serving.router, serving.large_bodies)

    async def _block(self, error: GuardBlockedError) -> None:
        """Refuse what a guardrail blocked, before or after the answer. Answers are billed."""
        assert self._guarded is not None
        self._guarded.blocked(error)
        if error.told:
            self.outcome, self.error = "cut", str(error)
        else:
            await self._refuse(*refused(error))

    def _left_s(self, route: Route) -> float:
        """What is left of the time for the whole request."""
        gone_s = (self._serving.clock_ns() - self._incoming.received_ns) * _S_PER_NS
        return max(0.001, route.total_s - gone_s)

    async def _out_of_time(self) -> None:
        """End a request whose time has passed, perhaps in the middle of its answer."""
        failure = Failure(kind="timeout", message="the time limit of the request has passed")
        if not self._status:
            await self._refuse(504, failure, "failed")
            return
        self.outcome, self.error = "cut", failure.message
        if self._incoming.stream:
            with contextlib.suppress(ClientGoneError, GuardBlockedError):
                await tell_failed(failure, self._prepared, self._incoming, self._sink)

    async def _tell_again(self) -> None:
        """Send an answer from the cache: no target is tried and nothing is paid."""
        at_cache, now_s = self._at_cache, self._serving.wall_s()
        assert at_cache.kept is not None
        self._status = 200
        self._tally = Tally(self._input_tokens)
        self._tally.take_reply(at_cache.kept.reply)
        await at_cache.answer(
            self._sink, now_s, self._overhead_us(), self._traffic.assigned, self._dropped()
        )
        self.outcome = "answered"

    async def _hold(self, ask: RoutingQuery, decision: Decision) -> None:
        accounts, caller = self._serving.accounts, self._incoming.caller
        if accounts is None or caller is None or not (decision.candidates or self._way):
            return  # no target can be tried, which `_find` reports
        router = self._serving.router
        tier = asked_service_tier(self._incoming.body)
        demand = demand_at(router, caller, ask, decision, most_hedges(router, ask), tier, self._way)
        await self._holding.take(demand)

    async def _go(self, way: Way) -> Opened:
        """Open the answer of a composed model."""
        self._sink = way.heartbeats(self._sink, self._prepared)
        router = self._serving.router

        async def find(ask: RoutingQuery, prepared: Prepared | None) -> tuple[Opened, Dispatch]:
            route = router.route(ask.wanted.models[0])
            assert route is not None
            opened = await self._find(ask, router.decide(ask, self._now_s()), route, prepared)
            assert self._dispatch is not None
            return opened, self._dispatch

        opened, self._dispatch = await way.answer(find, self._sink)
        return opened

    async def _find(
        self, ask: RoutingQuery, decision: Decision, route: Route, prepared: Prepared | None = None
    ) -> Opened:
        serving, incoming = self._serving, self._incoming
        dispatch = self._dispatch = Dispatch(
            router=serving.router,
            ask=ask,
            prepared=prepared or self._prepared,
            stream=incoming.stream,
            unsupported=serving.unsupported,
            most_reply_bytes=serving.most_reply_bytes,
            clock_ns=serving.clock_ns,
            source=serving.source,
            trace=self._trace,
            hedging=hedging_of(route, incoming, self._now_s()),
            asides=self.asides,
            holding=self._holding,
            large_bodies=serving.large_bodies,
        )
        if self._way is not None:
            self._way.inside.goes_on(dispatch)
        opened = await dispatch.open(decision, route)
        now_s = self._now_s()
        note_opened(opened, now_s)
        serving.router.served(opened.candidate.model, ask, opened.candidate.target, now_s)
        return opened

    async def _answer(self, opened: Opened, tally: Tally) -> None:
        dispatch, incoming = self._dispatch, self._incoming
        assert dispatch is not None
        headers = told_headers(
            incoming.id, opened.candidate, dispatch.attempts, self._overhead_us(),
            dispatch.ignored,
        )  # fmt: skip
        headers += self._traffic.headers(opened, dispatch)
        if self._way is not None:
            headers += self._way.headers()
        headers += self._at_cache.headers()
        names = Names(opened.candidate.target.model, incoming.id, int(self._arrived_s))
        sink = telling(self._serving, incoming, opened, self._sink, tally)
        if incoming.stream:
            await answer_stream(
                opened, self._prepared, incoming, sink, tally, headers, names,
                self._serving.clock_ns, self._detail,
            )  # fmt: skip
        else:
            self._bill = await answer_whole(
                opened, self._prepared, incoming, sink, tally, headers, names, self.asides
            )
        self.outcome = "answered" if tally.ended and tally.failure is None else "cut"
        if tally.failure is not None:
            self.error = tally.failure.message

    async def _refuse(self, status: int, failure: Failure, outcome: Outcome) -> None:
        incoming = self._incoming
        self.outcome, self.error = outcome, failure.message
        self._status = 200 if has_begun(self._sink) else status
        attempts = 0 if self._dispatch is None else self._dispatch.attempts
        headers = told_headers(incoming.id, None, attempts, self._overhead_us(), ())
        try:
            await answer_failed(failure, status, self._prepared, incoming, self._sink, headers)
        except ClientGoneError:
            self.outcome = "client_gone"

    async def close(self) -> None:
        """Settle, give back, write the lines. Runs to its end whatever happens."""
        try:
            await self._close()
        finally:
            self._at_cache.leave()
            was_sent = self._opened is not None or self._sent_as() is not None
            await self._holding.close(was_sent=was_sent)

    async def _close(self) -> None:
        opened, tally = self._opened, self._tally
        serving, incoming = self._serving, self._incoming
        if self.outcome == "client_gone" and opened is not None and tally is not None:
            await read_on(opened, tally)
        ended_ns = serving.clock_ns()
        unanswered = None
        if opened is None and tally is None and self._dispatch is not None:
            unanswered = self._dispatch.unanswered()
        bill = self._bill or bill_of(opened, tally, unanswered)
        if opened is not None and tally is not None:
            opened.reply.abort()  # whole replies have left it
            opened.candidate.target.health.ended()
            if incoming.stream:
                note_rate(opened, tally, ended_ns)
        overhead_us = self._overhead_us(None if opened is None else opened.first_ns)
        entry = line_of(
            incoming, opened, [] if self._dispatch is None else self._dispatch.tried,
            arrived_s=self._arrived_s, ended_ns=ended_ns, outcome=self.outcome,
            status=self._status, error=self.error, usage=bill.usage, usage_from=bill.usage_from,
            cost_nusd=bill.cost_nusd, finish=None if tally is None else tally.finish,
            overhead_us=overhead_us + (0 if tally is None else tally.worked_ns // 1000),
            assigned=self._traffic.assigned, unanswered=unanswered,
            skipped=() if self._dispatch is None else self._dispatch.left_out,
            dropped=self._dropped(),
        )  # fmt: skip
        if opened is None and tally is not None:
            entry = self._at_cache.entry(entry)
        if self._guarded is not None:
            entry = self._guarded.entry(entry)
        if self._way is not None:
            entry = self._way.entry(entry, opened)
        self.entry = entry
        serving.on_entry(entry)
        if self._visit is not None:
            self._visit.ended(entry)
        for number, aside in enumerate(self.asides, 1):
            serving.on_entry(aside_entry(entry, aside, number, incoming.received_ns))
        self._traffic.ended(entry, incoming, self._prepared, serving.shadows, len(self.asides))
        self._trace.ended(entry)
        if opened is not None and tally is not None and self.outcome == "answered":
            self._at_cache.keep(opened, tally, serving.wall_s())
        # Last, because it may wait; it is done even if a satisfied client leaves meanwhile.
        answers = opened or unanswered
        if serving.free_tier is not None and self._free is not None:
            served_by = None if answers is None else answers.candidate.target
            serving.free_tier.end(self._free, served_by, self.asides)
        sent = self._sent_as()
        bill, model = settled(bill, self._at_cache.kept, answers, sent)
        await self._holding.settle(bill, self.asides, was_sent=sent is not None, model=model)

    def _dropped(self) -> tuple[str, ...]:
        """What of the answer the client's dialect has no form for."""
        opened, tally = self._opened, self._tally
        if tally is None or (opened is not None and opened.ready.passed_on):
            return ()
        return tally.lost_citations(self._incoming.side.cited_sources)

    def _sent_as(self) -> str | None:
        if self._way is not None:
            return sent_as(self._way.inside.tried)
        return None if self._dispatch is None else sent_as(self._dispatch.tried)

    def _now_s(self) -> float:
        return self._serving.clock_ns() * _S_PER_NS

    def _overhead_us(self, until_ns: int | None = None) -> int:
        """The time so far that was not spent waiting for providers."""
        end_ns = self._serving.clock_ns() if until_ns is None else until_ns
        dispatch, waited_ns = self._dispatch, self._at_cache.waited_ns
        waited_ns += 0 if dispatch is None else dispatch.waited_ns
        waited_ns += 0 if self._guarded is None else self._guarded.waited_ns
        return max(0, end_ns - self._incoming.received_ns - waited_ns) // 1000
