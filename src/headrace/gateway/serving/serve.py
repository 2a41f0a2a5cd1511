"""A request from its arrival to the ledger's line: the one place that knows the whole order.

Held is first what it may take at most; then a target is found; then its answer goes out; then what
it took is settled. Whatever happens on the way, a line is written and what was held is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headrace.errors import RequestError
from headrace.gateway.access import check_models
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Actual, Demand
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.accounts.terms import DataPolicy
from headrace.gateway.cache.cache import ResponseCache
from headrace.gateway.routing.ask import Ask, ask_of, estimated_from_bytes
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.answering import answer_stream, answer_whole, tell_failed
from headrace.gateway.serving.aside import Aside, aside_entry
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.bill import cost_nusd, most_nusd
from headrace.gateway.serving.cached import AtCache
from headrace.gateway.serving.dispatch import Dispatch, NobodyAnsweredError
from headrace.gateway.serving.entry import Entry, Outcome
from headrace.gateway.serving.incoming import ClientGoneError, Incoming, Sink
from headrace.gateway.serving.line import line_of
from headrace.gateway.serving.named import Names
from headrace.gateway.serving.prepared import Prepared
from headrace.gateway.serving.refusals import refused
from headrace.gateway.serving.reply_headers import told_headers
from headrace.gateway.serving.tally import Tally
from headrace.gateway.telemetry.tracing import NOT_TRACED, Moment, Tracing
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage

logger = logging.getLogger(__name__)

_S_PER_NS = 1e-9
# Where the client does not say: held back is what most answers stay below.
_OUTPUT_TOKENS = 4096
_SESSION_HEADERS = ("x-session-id", "x-headrace-session")


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """What all requests share. accounts: None where nobody is counted. wall_s: Unix time; clock_ns:
    monotonic. on_entry takes each line of the ledger and must not wait. cache: None without one."""

    router: Router
    accounts: Accounts | None
    drop_unsupported: bool
    most_reply_bytes: int
    clock_ns: Callable[[], int]
    wall_s: Callable[[], float]
    source: random.Random
    on_entry: Callable[[Entry], None]
    cache: ResponseCache | None = None
    tracing: Tracing = NOT_TRACED


async def serve(serving: Serving, incoming: Incoming, sink: Sink) -> Entry:
    """Answer a request. Cancelling it is how a client goes: what came until then is billed."""
    course = _Course(serving, incoming, sink)
    try:
        await course.run()
    except asyncio.CancelledError:
        course.outcome = "client_gone"
        await asyncio.shield(course.close())
        raise
    except Exception:
        # A fault of ours ends this request and no other.
        logger.exception("request %s failed", incoming.id)
        await course.fail()
    await course.close()
    assert course.entry is not None
    return course.entry


class _Course:
    """The state of one request on its way."""

    def __init__(self, serving: Serving, incoming: Incoming, sink: Sink) -> None:
        self._serving = serving
        self._incoming = incoming
        self._sink = sink
        self._prepared = Prepared(incoming)
        self._at_cache = AtCache(serving.cache, incoming, self._prepared)
        self._arrived_s = serving.wall_s()
        arrived = Moment(int(self._arrived_s * 1e9), incoming.received_ns, serving.clock_ns)
        self._trace = serving.tracing.began(incoming, arrived)
        self._held: Reservation | None = None
        self._opened: Opened | None = None
        self._dispatch: Dispatch | None = None
        self._tally: Tally | None = None
        self._input_tokens = estimated_from_bytes(incoming.body.body)
        self._status = 0
        self.outcome: Outcome = "failed"
        self.error = ""
        self.variant = ""
        self.asides: list[Aside] = []
        self.entry: Entry | None = None

    async def fail(self) -> None:
        """What a fault of ours becomes: a 500, or the end of a reply that has begun."""
        self.outcome, self.error = "failed", "a fault of the gateway"
        if not self._status:
            failure = Failure(kind="server", message=self.error, code="internal_error")
            await self._refuse(500, failure, "failed")

    async def run(self) -> None:
        """Everything but the settling."""
        try:
            ask = self._ask()
            check_models(self._incoming.caller, ask.wanted.models)
            decision = self._serving.router.decide(ask, self._now_s())
            if await self._at_cache.find(ask, self._serving.router):
                await self._answer_again(ask)
                return
            await self._hold(ask, decision)
            route = self._serving.router.route(ask.wanted.models[0])
            assert route is not None
            async with asyncio.timeout(self._left_s(route)):
                opened = self._opened = await self._find(ask, decision, route)
                self._status = 200
                self._tally = self._at_cache.tally(self._input_tokens, opened)
                await self._answer(opened, self._tally)
        except ClientGoneError:
            self.outcome = "client_gone"
        except TimeoutError:
            await self._out_of_time()
        except (RequestError, AccountsError, NobodyAnsweredError) as error:
            if self._status:
                raise
            await self._refuse(*refused(error))

    def _left_s(self, route: Route) -> float:
        """Of the time for the whole request."""
        gone_s = (self._serving.clock_ns() - self._incoming.received_ns) * _S_PER_NS
        return max(0.001, route.total_s - gone_s)

    async def _out_of_time(self) -> None:
        """The time for the whole request ends, perhaps in the middle of its answer."""
        failure = Failure(kind="timeout", message="the time for the whole request is over")
        if not self._status:
            await self._refuse(504, failure, "failed")
            return
        self.outcome, self.error = "cut", failure.message
        if self._incoming.stream:
            with contextlib.suppress(ClientGoneError):
                await tell_failed(failure, self._prepared, self._incoming, self._sink)
                await self._sink.end()

    def _ask(self) -> Ask:
        incoming = self._incoming
        body = incoming.body
        found = ask_of(body, incoming.model)
        session = next(
            (incoming.headers[name] for name in _SESSION_HEADERS if name in incoming.headers), None
        )
        if session is None:
            user = body.decoded("user")
            session = user if isinstance(user, str) else None
        policy = DataPolicy() if incoming.caller is None else incoming.caller.data_policy
        return found._replace(
            session=session,
            regions=policy.regions,
            no_retention=policy.zero_retention,
            keeps_no_data=policy.data_collection == "deny",
        )

    async def _answer_again(self, ask: Ask) -> None:
        """From the cache: nobody is asked and nothing is paid."""
        at_cache, serving = self._at_cache, self._serving
        assert at_cache.kept is not None
        self._held = await at_cache.hold(serving.accounts, ask)
        self._status = 200
        self._tally = Tally(self._input_tokens)
        self._tally.take_reply(at_cache.kept.reply)
        overhead_us = self._overhead_us(serving.clock_ns())
        try:
            await at_cache.answer(self._sink, serving.wall_s(), overhead_us)
        except ClientGoneError:
            self.outcome = "client_gone"
        else:
            self.outcome = "answered"

    async def _hold(self, ask: Ask, decision: Decision) -> None:
        accounts, caller = self._serving.accounts, self._incoming.caller
        if accounts is None or caller is None:
            return
        output = ask.most_output_tokens or _OUTPUT_TOKENS
        costs = [
            most_nusd(one.target.price, ask.input_tokens, output) for one in decision.candidates
        ]
        known = [one for one in costs if one is not None]
        demand = Demand(
            model=ask.wanted.models[0],
            input_tokens=ask.input_tokens,
            most_output_tokens=output,
            most_cost_nusd=max(known) if known and len(known) == len(costs) else None,
        )
        self._held = await accounts.reserve(caller, demand)

    async def _find(self, ask: Ask, decision: Decision, route: Route) -> Opened:
        serving, incoming = self._serving, self._incoming
        dispatch = self._dispatch = Dispatch(
            router=serving.router,
            ask=ask,
            prepared=self._prepared,
            stream=incoming.stream,
            drop_unsupported=serving.drop_unsupported,
            most_reply_bytes=serving.most_reply_bytes,
            clock_ns=serving.clock_ns,
            source=serving.source,
            trace=self._trace,
        )
        opened = await dispatch.open(decision, route)
        target = opened.candidate.target
        now_s = self._now_s()
        target.health.succeeded(now_s)
        target.health.had_first_token((opened.first_ns - opened.sent_ns) * _S_PER_NS, now_s)
        serving.router.served(opened.candidate.model, ask, target, now_s)
        return opened

    async def _answer(self, opened: Opened, tally: Tally) -> None:
        assert self._dispatch is not None
        incoming = self._incoming
        overhead_us = self._overhead_us(self._serving.clock_ns())
        attempts = len(self._dispatch.tried) + 1
        headers = told_headers(
            incoming.id, opened.candidate, attempts, overhead_us, self._dispatch.ignored
        )
        headers += self._at_cache.headers()
        model = opened.candidate.target.model
        names = Names(model, incoming.id, int(self._arrived_s))
        if incoming.stream:
            await answer_stream(
                opened,
                self._prepared,
                incoming,
                self._sink,
                tally,
                headers,
                names,
                self._serving.clock_ns,
            )
        else:
            if opened.answer is not None:
                tally.take_reply(opened.answer)
            cost = cost_nusd(tally.usage[0], opened.candidate.target.price)
            await answer_whole(opened, self._prepared, incoming, self._sink, headers, cost, names)
        self.outcome = "answered" if tally.ended and tally.failure is None else "cut"
        if tally.failure is not None:
            self.error = tally.failure.message

    async def _refuse(self, status: int, failure: Failure, outcome: Outcome) -> None:
        incoming = self._incoming
        self.outcome, self._status, self.error = outcome, status, failure.message
        dispatch = self._dispatch
        headers = told_headers(
            incoming.id,
            None,
            len(dispatch.tried) if dispatch is not None else 0,
            self._overhead_us(self._serving.clock_ns()),
            (),
        )
        if failure.retry_after_s is not None:
            headers.append(("retry-after", str(max(1, -int(-failure.retry_after_s // 1)))))
        body = incoming.side.write_failure(failure, status, incoming.id)
        headers.append(("content-length", str(len(body))))
        try:
            await self._sink.start(status, [("content-type", "application/json"), *headers])
            await self._sink.write(body)
            await self._sink.end()
        except ClientGoneError:
            self.outcome = "client_gone"

    async def close(self) -> None:
        """Settle, give back, write the lines. Runs to its end whatever happens."""
        opened, tally, serving = self._opened, self._tally, self._serving
        usage: TokenUsage | None = None
        usage_from: Literal["provider", "estimated", "none"] = "none"
        cost: int | None = None
        ended_ns = serving.clock_ns()
        if tally is not None:
            usage, usage_from = tally.usage
            cost = 0  # from the cache
        if opened is not None and usage is not None and tally is not None:
            target = opened.candidate.target
            opened.reply.abort()  # whole replies have left it
            target.health.ended()
            cost = cost_nusd(usage, target.price)
            self._note_rate(opened, tally, ended_ns)
        await self._settle(usage, cost)
        overhead_us = self._overhead_us(None if opened is None else opened.first_ns)
        entry = line_of(
            self._incoming,
            opened,
            [] if self._dispatch is None else self._dispatch.tried,
            arrived_s=self._arrived_s,
            ended_ns=ended_ns,
            outcome=self.outcome,
            status=self._status,
            error=self.error,
            usage=usage,
            usage_from=usage_from,
            cost_nusd=cost,
            finish=None if tally is None else tally.finish,
            overhead_us=overhead_us + (0 if tally is None else tally.worked_ns // 1000),
            variant=self.variant,
        )
        if opened is None and tally is not None:
            entry = self._at_cache.entry(entry)
        self.entry = entry
        serving.on_entry(entry)
        for number, aside in enumerate(self.asides, 1):
            serving.on_entry(aside_entry(entry, aside, number, self._incoming.received_ns))
        self._trace.ended(entry)
        if opened is not None and tally is not None and self.outcome == "answered":
            self._at_cache.keep(opened, tally, serving.wall_s())

    async def _settle(self, usage: TokenUsage | None, cost: int | None) -> None:
        """With what was paid for besides. A cost nobody knows makes the sum one."""
        if self._held is None:
            return
        if usage is None and not self.asides:
            await self._held.release()
            return
        used = [] if usage is None else [usage]
        used += [one.usage for one in self.asides]
        costs = [] if usage is None else [cost]
        costs += [one.cost_nusd for one in self.asides]
        known = [one for one in costs if one is not None]
        await self._held.settle(
            Actual(
                input_tokens=sum(one.prompt_tokens for one in used),
                output_tokens=sum(one.completion_tokens for one in used),
                cost_nusd=sum(known) if len(known) == len(costs) else None,
            )
        )

    def _note_rate(self, opened: Opened, tally: Tally, ended_ns: int) -> None:
        usage, told = tally.usage
        lasted_s = (ended_ns - opened.first_ns) * _S_PER_NS
        if told == "provider" and self._incoming.stream and lasted_s > 0.01:
            tokens = usage.completion_tokens - 1
            if tokens > 0:
                now_s = ended_ns * _S_PER_NS
                opened.candidate.target.health.had_rate(tokens / lasted_s, now_s)

    def _now_s(self) -> float:
        return self._serving.clock_ns() * _S_PER_NS

    def _overhead_us(self, until_ns: int | None) -> int:
        """Of the time so far, what was not spent waiting for providers."""
        end_ns = self._serving.clock_ns() if until_ns is None else until_ns
        waited_ns = 0 if self._dispatch is None else self._dispatch.waited_ns
        return max(0, end_ns - self._incoming.received_ns - waited_ns) // 1000
