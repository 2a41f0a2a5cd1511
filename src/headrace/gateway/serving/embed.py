"""A request for embeddings from its arrival to the ledger's line.

The most it may use is held first; then targets are tried; then what they used is settled, also for
a request that no target answered or whose client left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.errors import RequestError
from headrace.gateway.access import check_models
from headrace.gateway.accounts.caller import Demand
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.accounts.terms import DataPolicy
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.reach import may_follow
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.variants import Who
from headrace.gateway.serving.attempt_entries import failed_attempts
from headrace.gateway.serving.bill import most_nusd
from headrace.gateway.serving.demanded import with_names
from headrace.gateway.serving.embedding_dispatch import EmbeddingDispatch
from headrace.gateway.serving.embedding_request import EmbeddingRequest, EmbeddingResult
from headrace.gateway.serving.ending import sent_as
from headrace.gateway.serving.entry import Entry, Outcome
from headrace.gateway.serving.free_tier import FreeHold
from headrace.gateway.serving.holding import Holding
from headrace.gateway.serving.refusals import refusal_of
from headrace.gateway.serving.serving import Serving
from headrace.gateway.serving.target_failures import (
    AllTargetsFailedError,
    nobody_answered,
    reasons_of,
)
from headrace.gateway.targets.target import Target
from headrace.gateway.within import Within
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingProvider
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage

_S_PER_NS = 1e-9
_MS_PER_NS = 1e-6
_BYTES_PER_TOKEN = 3


def embeddings_of(target: Target) -> EmbeddingProvider | None:
    """How the target makes embeddings; None if it does not."""
    return target.provider.embeddings


async def embed(
    serving: Serving, asked: EmbeddingRequest, side_of: Callable[[Target], EmbeddingProvider | None]
) -> EmbeddingResult:
    """Answer a request and write its ledger line. Raises RequestError, AccountsError,
    AllTargetsFailedError."""
    course = _Course(serving, asked, side_of)
    try:
        return await course.run()
    except asyncio.CancelledError:
        course.outcome = "client_gone"
        raise
    except AllTargetsFailedError as error:
        course.status, course.error = error.status, str(error)
        course.outcome = "refused" if error.is_clients else "failed"
        raise
    except RequestError as error:
        course.outcome, course.status, course.error = "refused", 400, str(error)
        raise
    except AccountsError as error:
        course.outcome, course.status, course.error = "refused", refusal_of(error)[0], str(error)
        raise
    finally:
        course.close()


class _Course:
    def __init__(
        self,
        serving: Serving,
        asked: EmbeddingRequest,
        side_of: Callable[[Target], EmbeddingProvider | None],
    ) -> None:
        self._serving = serving
        self._asked = asked
        self._holding = Holding(serving.accounts, asked.caller)
        self._dispatch = EmbeddingDispatch(
            router=serving.router, ask=self._ask(), clock_ns=serving.clock_ns,
            source=serving.source, holding=self._holding,
            serving=serving, asked=asked, side_of=side_of,
            unsupported="drop" if asked.purpose else serving.unsupported,
        )  # fmt: skip
        self._free: FreeHold | None = None
        self._target: Target | None = None
        self._arrived_s = serving.wall_s()
        self.outcome: Outcome = "failed"
        self.status = 0
        self.error = ""

    async def run(self) -> EmbeddingResult:
        serving, asked, dispatch = self._serving, self._asked, self._dispatch
        if asked.refusal is not None:
            raise asked.refusal
        ask = dispatch.ask
        check_models(asked.caller, ask.wanted.models, serving.router)
        decision = self._decide(ask)
        if (tier := serving.free_tier) is not None and not asked.purpose:
            self._free = await tier.hold(serving.router, ask, decision, asked)
            ask, decision = self._free.ask, self._free.decision
            dispatch.ask = ask
        await self._hold(ask, decision)
        route = serving.router.route(ask.wanted.models[0])
        assert route is not None
        try:
            with Within(self._left_s(route)):
                made = await dispatch.first(decision, route)
        except TimeoutError:
            failure = Failure(kind="timeout", message="the time limit of the request has passed")
            raise AllTargetsFailedError(504, failure, tuple(dispatch.tried), ()) from None
        finally:
            await asyncio.shield(self._settle())
        self._target = made.candidate.target
        self.outcome, self.status = "answered", 200
        overhead_us = self._overhead_us(serving.clock_ns())
        return EmbeddingResult(
            made.reply,
            made.candidate,
            dispatch.attempts,
            overhead_us,
            self._cost(),
            made.body,
            dispatch.ignored,
        )

    def _ask(self) -> RoutingQuery:
        asked, caller = self._asked, self._asked.caller
        policy = DataPolicy() if caller is None else caller.data_policy
        return RoutingQuery(
            wanted=asked.wanted,
            input_tokens=_estimated(asked.call),
            priority=0 if caller is None else caller.priority,
            regions=policy.regions,
            no_retention=policy.zero_retention,
            keeps_no_data=policy.data_collection == "deny",
            who=Who(
                user=None if caller is None else caller.user,
                key=None if caller is None else caller.key_id,
                request=asked.id,
            ),
        )

    def _decide(self, ask: RoutingQuery) -> Decision:
        """Targets that make embeddings. Raises AllTargetsFailedError, RequestError."""
        decision = self._serving.router.decide(ask, self._serving.clock_ns() * _S_PER_NS)
        if not decision.candidates:
            raise nobody_answered((), decision.left_out)
        able = self._dispatch.able(decision.candidates)
        if not able:
            raise RequestError(
                f"model {ask.wanted.models[0]}: none of its targets supports embeddings",
                param="model",
                code="unsupported_model",
            )
        return decision._replace(candidates=able)

    async def _hold(self, ask: RoutingQuery, decision: Decision) -> None:
        accounts, caller = self._serving.accounts, self._asked.caller
        if accounts is None or caller is None:
            return
        router, candidates = self._serving.router, decision.candidates
        candidates += self._dispatch.able(may_follow(router, candidates, ask))
        costs = [most_nusd(candidate.target.price, ask.input_tokens, 0) for candidate in candidates]
        known = [cost for cost in costs if cost is not None]
        asked = ask.wanted.models
        demand = Demand(
            model=asked[0],
            input_tokens=ask.input_tokens,
            most_cost_nusd=max(known) if len(known) == len(costs) else None,
        )
        demand = with_names(
            demand, router, caller, asked, (candidate.model for candidate in candidates)
        )
        await self._holding.take(demand)

    async def _settle(self) -> None:
        dispatch = self._dispatch
        took = [paid.took for paid in dispatch.paid]
        model = sent_as(dispatch.tried)
        try:
            await self._holding.settle_each(took, sent_as=model)
        finally:
            await self._holding.close(was_sent=bool(took) or model is not None)

    def _usage(self) -> TokenUsage | None:
        """The usage of all that is billed, failed targets included; None if nothing is."""
        paid = self._dispatch.paid
        if len(paid) < 2:
            return paid[0].usage if paid else None
        return TokenUsage(input_tokens=sum(line.usage.prompt_tokens for line in paid))

    def _cost(self) -> int | None:
        """The sum of each target's cost; None if one of them is unknown."""
        paid = self._dispatch.paid
        costs = [line.took.cost_nusd for line in paid]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if paid and len(known) == len(costs) else None

    def _left_s(self, route: Route) -> float:
        """What is left of the time for the whole request."""
        gone_s = (self._serving.clock_ns() - self._asked.received_ns) * _S_PER_NS
        return max(0.001, route.total_s - gone_s)

    def _overhead_us(self, until_ns: int) -> int:
        """The time that was not spent waiting for providers."""
        return max(0, until_ns - self._asked.received_ns - self._dispatch.waited_ns) // 1000

    def close(self) -> None:
        """Write the ledger line."""
        asked, ended_ns, paid = self._asked, self._serving.clock_ns(), self._dispatch.paid
        tier = self._serving.free_tier
        if tier is not None and self._free is not None:
            tier.end(self._free, self._target)
        path = {} if asked.caller is None else dict(asked.caller.path)
        # If no target answered, the line names the one that bills.
        target = self._target or (paid[-1].target if paid else None)
        is_told = all(line.is_told for line in paid)
        entry = Entry(
            id=asked.id,
            at_s=self._arrived_s,
            operation="embeddings",
            purpose=asked.purpose,
            guardrails=asked.guardrails,
            parent=asked.parent,
            dialect=asked.dialect,
            model=asked.call.model,
            target=None if target is None else target.name,
            provider=None if target is None else target.provider.name,
            outcome=self.outcome,
            status=self.status,
            stream=False,
            attempts=failed_attempts(self._dispatch.tried),
            usage=self._usage(),
            usage_from="none" if not paid else "provider" if is_told else "estimated",
            cost_nusd=self._cost(),
            finish=None,
            first_token_ms=None,
            total_ms=(ended_ns - asked.received_ns) * _MS_PER_NS,
            overhead_us=self._overhead_us(ended_ns),
            organisation=path.get("organisation", ""),
            team=path.get("team", ""),
            user=path.get("user", ""),
            key=path.get("key", ""),
            tags=() if asked.caller is None else asked.caller.tags,
            error=self.error,
            ignored=self._dispatch.ignored,
            skipped=reasons_of(self._dispatch.left_out),
        )
        self._serving.on_entry(entry)
        if asked.on_entry is not None:
            asked.on_entry(entry)
        asked.trace.ended(entry)


def _estimated(call: EmbeddingCall) -> int:
    """An estimate of the tokens, rather too high than too low."""
    return sum(
        len(text) if isinstance(text, tuple) else len(text.encode()) // _BYTES_PER_TOKEN + 1
        for text in call.inputs
    )
