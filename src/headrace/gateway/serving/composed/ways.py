"""Chooses how a request for a composed model is served."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.gateway.routing.complexity.choice import Choice, Classifier, choice_of
from headrace.gateway.routing.complexity.view import View, view_of
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.reach import may_follow
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.side_effects import acts_at_provider
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.serving.aside import Aside
from headrace.gateway.serving.bill import most_nusd
from headrace.gateway.serving.composed.choosing import routed
from headrace.gateway.serving.composed.inside import OWN_TOKENS, Inside
from headrace.gateway.serving.composed.most import NOTHING, Most, dearest
from headrace.gateway.serving.composed.way import RoutedWay, StagedWay, Way
from headrace.gateway.serving.demanded import OUTPUT_TOKENS
from headrace.gateway.serving.holding import Holding
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import Prepared, asked_service_tier
from headrace.gateway.settings.cascade import AcceptSettings, StageSettings
from headrace.gateway.settings.complexity import MOST_ROUTER_CHARS, ChooseSettings
from headrace.gateway.settings.model import ModelSettings
from headrace.gateway.settings.reliability import Unsupported
from headrace.http.large_bodies import LargeBodies
from headrace.protocol.dialects.token_count import MOST_TOKENS
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import ClientSide

_S_PER_NS = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Ways:
    """The composed models of the configuration, and what planning a request for one needs."""

    models: Mapping[str, ModelSettings]
    """Composed models by name."""
    router: Router
    chat: ClientSide
    chosen: Sticky
    """The model chosen for each conversation."""
    unsupported: Unsupported
    most_reply_bytes: int
    large_bodies: LargeBodies
    clock_ns: Callable[[], int]
    source: random.Random
    classifier: Classifier | None = None
    """None if no model of the configuration uses it."""

    def model(self, name: str) -> ModelSettings | None:
        """The composed model of that name; None for a model with targets or an unknown one."""
        return self.models.get(self.router.own_name(name))

    def way(
        self,
        ask: RoutingQuery,
        prepared: Prepared,
        incoming: Incoming,
        asides: list[Aside],
        holding: Holding,
    ) -> Way | None:
        """The plan of a request; None if its model is not a composed one. Calls nothing.

        Billed calls beside the answer are added to `asides`; `holding` holds the budget for all.
        """
        name = ask.wanted.models[0]
        if self.model(name) is None:
            return None
        inside = Inside(
            router=self.router,
            chat=self.chat,
            incoming=incoming,
            ask=ask,
            unsupported=self.unsupported,
            most_reply_bytes=self.most_reply_bytes,
            large_bodies=self.large_bodies,
            clock_ns=self.clock_ns,
            source=self.source,
            holding=holding,
            asides=asides,
        )
        try:
            call = prepared.call
        except RequestError:
            # A provider that is passed the body may read it; no choice can depend on it here.
            call = None
        return self._of(name, ask, inside, call, None if call is None else view_of(call), [])

    def _of(
        self,
        name: str,
        asked: RoutingQuery,
        inside: Inside,
        call: ChatCall | None,
        view: View | None,
        told: list[str],
    ) -> Way:
        model = self.model(name)
        if model is None:
            return Way(self._for(name, asked), inside, told)
        if model.choose is not None:
            return self._choosing(name, model.choose, asked, inside, call, view, told)
        stages: tuple[StageSettings, ...] = ()
        if model.cascade is not None:
            *first, last = model.cascade.stages
            stages, accept, beat_s = tuple(first), model.cascade.accept, model.cascade.heartbeat_s
        else:
            pipeline = model.pipeline
            assert pipeline is not None
            stages, last = (pipeline.draft,), pipeline.final
            accept, beat_s = pipeline.decide, pipeline.heartbeat_s
        ask = self._for(last.model, asked, model.fallbacks)
        if call is None:
            return Way(ask, inside, [*told, f"{last.model}: the request cannot be read"])
        if acts_at_provider(inside.incoming.body):
            return Way(ask, inside, [*told, f"{last.model}: it acts, so it must not be sent twice"])
        return StagedWay(
            ask=ask,
            inside=inside,
            told=told,
            besides=self._most_besides(name, ask, asked_service_tier(inside.incoming.body)),
            heartbeat_s=beat_s,
            stages=stages,
            accept=accept,
            call=call,
            classifier=self.classifier,
            gives_draft=model.pipeline is not None and model.pipeline.give.draft,
            speculative=model.pipeline is not None and model.pipeline.speculative,
        )

    def _choosing(
        self,
        name: str,
        choose: ChooseSettings,
        asked: RoutingQuery,
        inside: Inside,
        call: ChatCall | None,
        view: View | None,
        told: list[str],
    ) -> Way:
        if view is None or call is None:
            told = [*told, "the request cannot be read"]
            return self._of(choose.default, asked, inside, call, view, told)
        found = choice_of(choose, view, self.classifier)
        key = None
        if not choose.per_turn:
            conversation = _conversation(asked, inside.incoming, call)
            key = conversation.now
            kept = self._kept(name, conversation)
            if kept in choose.models and (found is None or found.is_default):
                found = Choice(kept, "as before in this conversation")
        if found is not None:
            self._keep(name, key, found)
            return self._of(found.model, asked, inside, call, view, [*told, found.said])

        async def route() -> Way:
            chosen = await routed(choose, view, inside)
            self._keep(name, key, chosen)
            return self._of(chosen.model, inside.ask, inside, call, view, [chosen.said])

        return RoutedWay(
            ask=self._for(name, asked, self._fallbacks_of(choose)),
            inside=inside,
            told=told,
            besides=self._most_besides(name, asked, asked_service_tier(inside.incoming.body)),
            heartbeat_s=self._heartbeat_s(choose),
            route=route,
        )

    def _fallbacks_of(self, choose: ChooseSettings) -> tuple[str, ...]:
        """Fallbacks of the composed models that it may choose."""
        found: tuple[str, ...] = ()
        for chosen in choose.models:
            model = self.model(chosen)
            if model is not None:
                inner = () if model.choose is None else self._fallbacks_of(model.choose)
                found += model.fallbacks + inner
        return found

    def _heartbeat_s(self, choose: ChooseSettings) -> float | None:
        """The shortest interval of models that hold an answer back; None if there are none."""
        inner = [model for name in choose.models if (model := self.model(name)) is not None]
        staged = [stages.cascade or stages.pipeline for stages in inner]
        return min((stages.heartbeat_s for stages in staged if stages is not None), default=None)

    def _kept(self, name: str, conversation: _Conversation) -> str:
        now_s = self.clock_ns() * _S_PER_NS
        each = (self.chosen.target(name, key, now_s) for key in conversation.before)
        return next((name for name in each if name is not None), "")

    def _keep(self, name: str, key: str | None, choice: Choice) -> None:
        # A default is not a decision: the next turn may bring one.
        if key is not None and not choice.is_default:
            self.chosen.had(name, key, choice.model, self.clock_ns() * _S_PER_NS)

    def _for(self, name: str, asked: RoutingQuery, fallbacks: tuple[str, ...] = ()) -> RoutingQuery:
        """The routing query for `name`, then for the fallbacks of the client and the file."""
        route = self.router.route(name)
        own = () if route is None else route.fallbacks
        first = self.router.route(asked.wanted.models[0])
        more = () if first is None else first.fallbacks
        models = dict.fromkeys((name, *own, *asked.wanted.models[1:], *fallbacks, *more))
        return asked._replace(wanted=msgspec.structs.replace(asked.wanted, models=tuple(models)))

    def _most_besides(self, name: str, ask: RoutingQuery, tier: str | None) -> Most:
        """The most `name` may use besides its answer; `tier` is the requested service tier."""
        model = self.model(name)
        if model is None:
            return NOTHING
        if model.choose is not None:
            inner = [
                self._most_besides(inner_name, ask, tier) for inner_name in model.choose.models
            ]
            return dearest(inner) + self._of_router(model.choose, ask)
        if model.cascade is not None:
            return self._of_stages(model.cascade.stages[:-1], model.cascade.accept, ask, tier)
        pipeline = model.pipeline
        assert pipeline is not None
        most = self._of_stages((pipeline.draft,), pipeline.decide, ask, tier)
        if pipeline.give.draft:
            draft = OWN_TOKENS + (ask.most_output_tokens or OUTPUT_TOKENS)
            most += self._most(pipeline.final.model, ask, draft, 0, tier)
        return most
        # The judge sees the first choice only.

    def _of_stages(
        self,
        stages: tuple[StageSettings, ...],
        accept: AcceptSettings,
        ask: RoutingQuery,
        tier: str | None,
    ) -> Most:
        output = ask.most_output_tokens or OUTPUT_TOKENS
        written = min(output * ask.choices, MOST_TOKENS)
        total = NOTHING
        for stage in stages:
            total += self._most(stage.model, ask, ask.input_tokens, written, tier)
            if accept.by in ("judge", "verifier"):
                judge = accept.judge
                # It is shown the first choice.
                tokens = ask.input_tokens + output + OWN_TOKENS
                total += self._most(judge.model or stage.model, ask, tokens, judge.max_tokens)
        return total

    def _of_router(self, choose: ChooseSettings, ask: RoutingQuery) -> Most:
        if choose.model is None:
            return NOTHING
        tokens = OWN_TOKENS + MOST_ROUTER_CHARS
        return self._most(choose.model.ask, ask, tokens, choose.model.max_tokens)

    def _most(
        self,
        name: str,
        ask: RoutingQuery,
        input_tokens: int,
        output_tokens: int,
        tier: str | None = None,
    ) -> Most:
        wanted = msgspec.structs.replace(ask.wanted, models=(name,))
        # Any target counts: the gateway's own question is shorter than the client's request.
        ask = ask._replace(wanted=wanted, least=None, most_output_tokens=None)
        candidates = tuple(self.router.could_ask((name,), ask))
        candidates += may_follow(self.router, candidates, ask)
        costs = [
            most_nusd(candidate.target.price, input_tokens, output_tokens, tier)
            for candidate in candidates
        ]
        known = [cost for cost in costs if cost is not None]
        cost = max(known, default=0) if len(known) == len(costs) else None
        return Most(input_tokens, output_tokens, cost, (name,), candidates)


class _Conversation(NamedTuple):
    """The keys under which a conversation's choice of model is kept."""

    before: tuple[str, ...]
    """Keys that its last turn may have been kept under."""
    now: str
    """The key of this turn."""


def _conversation(ask: RoutingQuery, incoming: Incoming, call: ChatCall) -> _Conversation:
    """By its session; without one by all of its text, so that only a conversation that continues
    the same turn matches. Conversations of two keys never match."""
    owner = "" if incoming.caller is None else incoming.caller.key_id
    if ask.session is not None:
        name = f"{owner}\n{ask.session}"
        return _Conversation((name,), name)
    digest = hashlib.blake2b(owner.encode(), digest_size=12)
    for text in call.instructions:
        digest.update(text.text.encode(errors="replace"))
    turns: list[str] = []
    for message in call.messages:
        digest.update(f"\n{message.role}\n".encode())
        for part in message.parts:
            content = getattr(part, "text", "") or getattr(part, "arguments", "")
            digest.update(content.encode(errors="replace"))
        if message.role == "user":
            turns.append(digest.hexdigest())
    now = digest.hexdigest()
    return _Conversation((now, *turns[-2:-1]), now)
