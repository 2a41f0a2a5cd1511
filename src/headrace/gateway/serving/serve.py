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

from headrace.errors import RequestError
from headrace.gateway.access import check_models
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Actual, Demand
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.accounts.terms import DataPolicy, Level
from headrace.gateway.cache.cache import ResponseCache
from headrace.gateway.routing.ask import Ask, ask_of, estimated_from_bytes
from headrace.gateway.routing.decision import Candidate, Decision
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.answering import answer_stream, answer_whole, tell_failed
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.attempt_entries import failed_attempts
from headrace.gateway.serving.bill import cost_nusd, most_nusd
from headrace.gateway.serving.cached import AtCache
from headrace.gateway.serving.dispatch import Dispatch, NobodyAnsweredError
from headrace.gateway.serving.entry import AttemptEntry, Entry, Outcome
from headrace.gateway.serving.incoming import ClientGoneError, Incoming, Sink
from headrace.gateway.serving.named import Names
from headrace.gateway.serving.prepared import Prepared
from headrace.gateway.serving.refusals import refusal_of
from headrace.gateway.serving.reply_headers import told_headers
from headrace.gateway.serving.tally import Tally
from headrace.gateway.telemetry.tracing import NOT_TRACED, Moment, Tracing
from headrace.protocol.neutral.failure import Failure, FailureKind

logger = logging.getLogger(__name__)

_S_PER_NS = 1e-9
_MS_PER_NS = 1e-6
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
        self.entry: Entry | None = None

    async def fail(self) -> None:
        """What a fault of ours becomes: a 500, or the end of a reply that has begun."""
        self.outcome, self.error = "failed", "a fault of the gateway"
        if not self._status:
            failure = Failure(kind="server", message=self.error, code="internal_error")
            await self._refuse(500, failure, "failed")

    async def run(self) -> None:
        """Everything but the settling."""
        incoming = self._incoming
        try:
            ask = self._ask()
            check_models(incoming.caller, ask.wanted.models)
            decision = self._serving.router.decide(ask, self._now_s())
            if await self._at_cache.find(ask, self._serving.router):
                await self._answer_again(ask)
                return
            await self._hold(ask, decision)
            opened = await self._find(ask, decision)
        except RequestError as error:
            status = 404 if error.code == "model_not_found" else 400
            kind: FailureKind = "not_found" if status == 404 else "bad_request"
            failure = Failure(
                kind=kind, message=str(error), status=status, code=error.code, param=error.param
            )
            await self._refuse(status, failure, "refused")
        except AccountsError as error:
            status, failure = refusal_of(error)
            await self._refuse(status, failure, "refused")
        except NobodyAnsweredError as error:
            await self._refuse(error.status, error.failure, "failed")
        except TimeoutError:
            failure = Failure(kind="timeout", message="the time for the whole request is over")
            await self._refuse(504, failure, "failed")
        else:
            self._opened = opened
            self._status = 200
            self._tally = self._at_cache.tally(self._input_tokens, opened)
            try:
                async with asyncio.timeout(self._left_s()):
                    await self._answer(opened, incoming)
            except ClientGoneError:
                self.outcome = "client_gone"
            except TimeoutError:
                await self._cut_off()

    def _left_s(self) -> float:
        """Of the time for the whole request."""
        route = self._serving.router.route(self._incoming.model)
        total_s = 3600.0 if route is None else route.total_s
        gone_s = (self._serving.clock_ns() - self._incoming.received_ns) * _S_PER_NS
        return max(0.001, total_s - gone_s)

    async def _cut_off(self) -> None:
        """The time for the whole request ends in the middle of its answer."""
        self.outcome, self.error = "cut", "the time for the whole request is over"
        if self._incoming.stream:
            failure = Failure(kind="timeout", message=self.error)
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

    async def _find(self, ask: Ask, decision: Decision) -> Opened:
        serving, incoming = self._serving, self._incoming
        route = serving.router.route(ask.wanted.models[0])
        assert route is not None
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
        async with asyncio.timeout(route.total_s):
            opened = await dispatch.open(decision, route)
        target = opened.candidate.target
        now_s = self._now_s()
        target.health.succeeded(now_s)
        target.health.had_first_token((opened.first_ns - opened.sent_ns) * _S_PER_NS, now_s)
        serving.router.served(opened.candidate.model, ask, target, now_s)
        return opened

    async def _answer(self, opened: Opened, incoming: Incoming) -> None:
        assert self._tally is not None
        assert self._dispatch is not None
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
                self._tally,
                headers,
                names,
                self._serving.clock_ns,
            )
        else:
            if opened.answer is not None:
                self._tally.take_reply(opened.answer)
            cost = cost_nusd(self._tally.usage[0], opened.candidate.target.price)
            await answer_whole(opened, self._prepared, incoming, self._sink, headers, cost, names)
        tally = self._tally
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
        """Settle, give back, write the line. Runs to its end whatever happens."""
        opened, tally = self._opened, self._tally
        usage, usage_from, cost = None, "none", None
        target = None if opened is None else opened.candidate.target
        ended_ns = self._serving.clock_ns()
        if opened is not None and tally is not None and target is not None:
            opened.reply.abort()  # whole replies have left it
            target.health.ended()
            usage, usage_from = tally.usage
            cost = cost_nusd(usage, target.price)
            self._note_rate(opened, tally, ended_ns)
        elif tally is not None:  # from the cache
            usage, usage_from = tally.usage
            cost = 0
        if self._held is not None:
            if usage is None:
                await self._held.release()
            else:
                await self._held.settle(
                    Actual(
                        input_tokens=usage.prompt_tokens,
                        output_tokens=usage.completion_tokens,
                        cost_nusd=cost,
                    )
                )
        incoming, caller = self._incoming, self._incoming.caller
        path: dict[Level, str] = {} if caller is None else dict(caller.path)
        self.entry = Entry(
            id=incoming.id,
            at_s=self._arrived_s,
            dialect=incoming.side.name,
            model=incoming.model,
            target=None if target is None else target.name,
            provider=None if target is None else target.provider.name,
            outcome=self.outcome,
            status=self._status,
            stream=incoming.stream,
            attempts=self._attempt_entries(opened, ended_ns),
            usage=usage,
            usage_from=usage_from,  # type: ignore[arg-type]
            cost_nusd=cost,
            finish=None if tally is None else tally.finish,
            first_token_ms=None
            if opened is None
            else (opened.first_ns - incoming.received_ns) * _MS_PER_NS,
            total_ms=(ended_ns - incoming.received_ns) * _MS_PER_NS,
            overhead_us=self._overhead_us(None if opened is None else opened.first_ns)
            + (0 if tally is None else tally.worked_ns // 1000),
            organisation=path.get("organisation", ""),
            team=path.get("team", ""),
            user=path.get("user", ""),
            key=path.get("key", ""),
            tags=() if caller is None else caller.tags,
            error=self.error,
        )
        if opened is None and tally is not None:
            self.entry = self._at_cache.entry(self.entry)
        self._serving.on_entry(self.entry)
        self._trace.ended(self.entry)
        if opened is not None and tally is not None and self.outcome == "answered":
            self._at_cache.keep(opened, tally, self._serving.wall_s())

    def _note_rate(self, opened: Opened, tally: Tally, ended_ns: int) -> None:
        usage, told = tally.usage
        lasted_s = (ended_ns - opened.first_ns) * _S_PER_NS
        if told == "provider" and self._incoming.stream and lasted_s > 0.01:
            tokens = usage.completion_tokens - 1
            if tokens > 0:
                now_s = ended_ns * _S_PER_NS
                opened.candidate.target.health.had_rate(tokens / lasted_s, now_s)

    def _attempt_entries(self, opened: Opened | None, ended_ns: int) -> tuple[AttemptEntry, ...]:
        tried = [] if self._dispatch is None else self._dispatch.tried
        found = list(failed_attempts(tried))
        if opened is not None:
            candidate: Candidate = opened.candidate
            found.append(
                AttemptEntry(
                    target=candidate.target.name,
                    began_ms=(opened.sent_ns - self._incoming.received_ns) * _MS_PER_NS,
                    lasted_ms=(ended_ns - opened.sent_ns) * _MS_PER_NS,
                    status=200,
                )
            )
        return tuple(found)

    def _now_s(self) -> float:
        return self._serving.clock_ns() * _S_PER_NS

    def _overhead_us(self, until_ns: int | None) -> int:
        """Of the time so far, what was not spent waiting for providers."""
        end_ns = self._serving.clock_ns() if until_ns is None else until_ns
        waited_ns = 0 if self._dispatch is None else self._dispatch.waited_ns
        return max(0, end_ns - self._incoming.received_ns - waited_ns) // 1000
