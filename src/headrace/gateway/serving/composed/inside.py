"""Calls of models that a request needs on its way: a judge, a router, a stage of a cascade."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from headrace.gateway.routing.estimate import BYTES_PER_TOKEN, utf8_bytes
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.after_failure import Tried
from headrace.gateway.serving.aside import Aside
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.bill import cost_nusd
from headrace.gateway.serving.composed.stage_prepared import StagePrepared
from headrace.gateway.serving.dispatch import Dispatch
from headrace.gateway.serving.entry import Purpose
from headrace.gateway.serving.holding import Holding
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import Prepared
from headrace.gateway.serving.rate import note_opened
from headrace.gateway.serving.tally import Tally
from headrace.gateway.settings.reliability import Unsupported
from headrace.http.large_bodies import LargeBodies
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide, DamagedReplyError
from headrace.protocol.neutral.part import Text
from headrace.protocol.neutral.reply import ChatReply, Finish
from headrace.protocol.neutral.usage import TokenUsage

_S_PER_NS = 1e-9
_CHAT_PATH = "/v1/chat/completions"
# Tokens of the gateway's own instructions around a question to a judge, roughly.
OWN_TOKENS = 250


class Answered(NamedTuple):
    """A whole answer of a model."""

    model: str
    dispatch: Dispatch
    opened: Opened
    reply: ChatReply
    usage: TokenUsage
    usage_from: Literal["provider", "estimated"]
    cost_nusd: int | None
    """None if the price is unknown."""
    finish: Finish | None
    ended_ns: int

    @property
    def text(self) -> str:
        """The text of its first choice."""
        return text_of(self.reply)


@dataclass(kw_only=True, slots=True)
class Inside:
    """Calls of models on behalf of one request, and their costs."""

    router: Router
    chat: ClientSide
    """The dialect in which the gateway's own questions are written."""
    incoming: Incoming
    ask: RoutingQuery
    unsupported: Unsupported
    most_reply_bytes: int
    large_bodies: LargeBodies
    clock_ns: Callable[[], int]
    source: random.Random
    holding: Holding
    """The budget held for all of it."""
    asides: list[Aside] = field(default_factory=list)
    """Billed calls beside the answer that is sent."""
    tried: list[Tried] = field(default_factory=list)
    """Attempts that failed."""
    waited_ns: int = 0
    """Time spent waiting for providers."""
    last: Dispatch | None = None
    """The dispatch of the model that answers in any case."""

    async def answer(
        self,
        model: str,
        prepared: Prepared,
        timeout_s: float | None,
        *,
        input_tokens: int,
        purpose: Purpose = "stage",
        is_ours: bool = False,
    ) -> Answered:
        """A whole answer of `model`.

        The answer is on nobody's bill yet: pass it to `aside`, or send it. One that is not waited
        for is billed as `purpose`. is_ours: the question is the gateway's own, so settings that a
        provider does not support are omitted. Raises AllTargetsFailedError, RequestError,
        DamagedReplyError, TimeoutError.
        """
        wanted = msgspec.structs.replace(self.ask.wanted, models=(model,))
        ask = self.ask._replace(wanted=wanted, input_tokens=input_tokens)
        if is_ours:
            # The length of the client's prompt and its limit on output do not apply to this one.
            ask = ask._replace(least=None, most_output_tokens=None)
        began_ns = self.clock_ns()
        decision = self.router.decide(ask, began_ns * _S_PER_NS)
        route = self.router.route(model)
        assert route is not None
        dispatch = Dispatch(
            router=self.router,
            ask=ask,
            prepared=prepared,
            stream=False,
            unsupported="drop" if is_ours else self.unsupported,
            most_reply_bytes=self.most_reply_bytes,
            large_bodies=self.large_bodies,
            clock_ns=self.clock_ns,
            source=self.source,
            holding=self.holding,
            asides=self.asides,
            tried=self.tried,
        )
        try:
            async with asyncio.timeout(timeout_s):
                opened = await dispatch.open(decision, route)
        except TimeoutError:
            self.cut_unanswered(dispatch, model, f"no answer in {timeout_s:g} s", purpose)
            raise
        except asyncio.CancelledError:
            self.cut_unanswered(dispatch, model, "no longer needed", purpose)
            raise
        finally:
            self.waited_ns += self.clock_ns() - began_ns
            dispatch.waited_ns = self.waited_ns
        return self._answered(dispatch, opened, ask)

    def _answered(self, dispatch: Dispatch, opened: Opened, ask: RoutingQuery) -> Answered:
        target, ended_ns = opened.candidate.target, self.clock_ns()
        now_s = ended_ns * _S_PER_NS
        note_opened(opened, now_s)
        self.router.served(opened.candidate.model, ask, target, now_s)
        try:
            reply = opened.read()
        except DamagedReplyError:
            opened.reply.abort()
            target.health.ended()
            raise
        tally = Tally(ask.input_tokens)
        tally.take_reply(reply)
        usage, usage_from = tally.usage
        asked = opened.ready.service_tier
        cost = cost_nusd(usage, target.price, tally.service_tier, asked_tier=asked)
        return Answered(
            model=ask.wanted.models[0],
            dispatch=dispatch,
            opened=opened,
            reply=reply,
            usage=usage,
            usage_from=usage_from,
            cost_nusd=cost,
            finish=tally.finish,
            ended_ns=ended_ns,
        )

    def aside(self, answered: Answered, purpose: Purpose, error: str = "") -> None:
        """Record an answer that is billed and not sent."""
        opened = answered.opened
        opened.reply.abort()  # the answer is whole and has left it
        opened.candidate.target.health.ended()
        self.asides.append(
            Aside(
                purpose=purpose,
                model=answered.model,
                target=opened.candidate.target,
                usage=answered.usage,
                usage_from=answered.usage_from,
                cost_nusd=answered.cost_nusd,
                sent_ns=opened.sent_ns,
                first_ns=opened.first_ns,
                ended_ns=answered.ended_ns,
                finish=answered.finish,
                error=error,
                answered_by=opened.candidate.model,
            )
        )

    def goes_on(self, dispatch: Dispatch) -> None:
        """Continue with the model that answers in any case, with the attempts made so far."""
        dispatch.tried = self.tried
        dispatch.waited_ns = self.waited_ns
        self.last = dispatch

    def cut(self, opened: Opened, model: str) -> None:
        """Abort an answer that has begun and is no longer needed."""
        now_ns = self.clock_ns()
        target = opened.candidate.target
        opened.reply.abort()
        target.health.ended()
        target.health.did_not_count(now_ns * _S_PER_NS)
        tally = Tally(self.ask.input_tokens)
        if opened.body is not None:
            tally.take_reply(opened.read())
        for event in () if opened.body is not None else opened.events:
            tally.take(event)
        usage, usage_from = tally.usage
        self.asides.append(
            Aside(
                purpose="stage",
                model=model,
                target=target,
                usage=usage,
                usage_from=usage_from,
                cost_nusd=cost_nusd(
                    usage,
                    target.price,
                    tally.service_tier,
                    asked_tier=opened.ready.service_tier,
                ),
                sent_ns=opened.sent_ns,
                first_ns=opened.first_ns,
                ended_ns=now_ns,
                outcome="answered" if opened.body is not None else "cut",
                stream=opened.reader is not None,
                finish=tally.finish,
                error="another answer was accepted",
                answered_by=opened.candidate.model,
            )
        )

    def cut_unanswered(
        self, dispatch: Dispatch, model: str, error: str, purpose: Purpose = "stage"
    ) -> None:
        """Record a request that was sent and is no longer needed: its prompt may be billed."""
        unanswered = dispatch.unanswered()
        if unanswered is None:
            return
        self.asides.append(
            Aside(
                purpose=purpose,
                model=model,
                target=unanswered.candidate.target,
                usage=unanswered.usage,
                usage_from="estimated",
                cost_nusd=unanswered.cost_nusd,
                sent_ns=unanswered.sent_ns,
                first_ns=None,
                ended_ns=self.clock_ns(),
                outcome="cut",
                stream=dispatch.stream,
                error=error,
                answered_by=unanswered.candidate.model,
            )
        )

    async def question(
        self,
        model: str,
        messages: Sequence[tuple[str, str]],
        *,
        max_tokens: int,
        timeout_s: float,
        purpose: Purpose,
        logprobs: int = 0,
    ) -> Answered:
        """A model's answer to a question of the gateway's, (role, text) each, billed as `purpose`.

        `logprobs` is the number of alternatives to request from providers that return them. Raises
        as `answer`.
        """
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": role, "content": text} for role, text in messages],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        raw = JsonObject.read(msgspec.json.encode(body))
        incoming = dataclasses.replace(
            self.incoming, side=self.chat, path=_CHAT_PATH, headers={}, body=raw, model=model,
            stream=False,
        )  # fmt: skip
        prepared = StagePrepared(incoming, logprobs)
        size = sum(utf8_bytes(text) for _, text in messages)
        tokens = OWN_TOKENS + size // BYTES_PER_TOKEN
        answered = await self.answer(
            model, prepared, timeout_s, input_tokens=tokens, purpose=purpose, is_ours=True
        )
        self.aside(answered, purpose)
        return answered


def text_of(reply: ChatReply) -> str:
    """The text of the first choice."""
    parts = reply.choices[0].parts if reply.choices else ()
    return "".join(part.text for part in parts if isinstance(part, Text))
