"""A request's guardrails: which apply, what they did, and the checks on its answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.guards.action import FIELD, Acted, GuardBlockedError
from headrace.gateway.guards.guard import NAMELESS, Guard, Subject
from headrace.gateway.guards.guarded_sink import GuardedSink
from headrace.gateway.guards.guardrails import Guardrails, asked_names
from headrace.gateway.guards.originals import Originals
from headrace.gateway.guards.request import looked_at
from headrace.gateway.guards.text_span import EMBEDDINGS
from headrace.gateway.routing.estimate import estimate
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.incoming import Incoming, Sink
from headrace.gateway.serving.refusals import failure_of
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.event import ReplyFailure

PROMPT_HEADER = "x-headrace-prompt"
_NO_GUARDRAILS = Guardrails((), {})


class Guarded:
    """The guardrails of one request.

    From `look` on, use its `incoming` and `sink` instead of those it was given. `waited_ns` is the
    time spent in webhooks and user functions.
    """

    def __init__(
        self,
        guardrails: Guardrails | None,
        incoming: Incoming,
        sink: Sink,
        clock_ns: Callable[[], int],
    ) -> None:
        self._guardrails = guardrails or _NO_GUARDRAILS
        self._clock_ns = clock_ns
        self._acted: list[Acted] = []
        self.waited_ns = 0
        self.incoming = incoming
        self.sink = sink

    async def look(self, ask: RoutingQuery, router: Router) -> None:
        """Check the request. Raises GuardBlockedError, RequestError."""
        incoming = self.incoming
        caller = incoming.caller
        guards = self._guardrails.of(
            _may_answer(ask.wanted.models, router),
            () if caller is None else caller.guardrails,
            asked_names(incoming.body.decoded(FIELD)),
        )
        subject = _subject(
            incoming.id, incoming.side.name, incoming.model, ask.input_tokens, caller
        )
        body = incoming.body
        if FIELD in body:
            body = JsonObject.read(body.edited({FIELD: None}))
        of_request = [
            guard for guard in guards if "input" in guard.on or guard.most_tokens is not None
        ]
        originals = Originals()
        # Whatever guardrails find, the client gets the same headers.
        self.sink = self._sink((), subject)
        if of_request:
            began_ns = self._clock_ns()
            try:
                found = await looked_at(of_request, subject, body)
            except GuardBlockedError as error:
                self._acted.append(error.acted)
                raise
            finally:
                if any(guard.look is not None for guard in of_request):
                    self.waited_ns += self._clock_ns() - began_ns
            body, originals = found.body, found.originals
            self._acted += found.acted
        if body is not incoming.body:
            self.incoming = dataclasses.replace(incoming, body=body)
        of_answer = [
            guard for guard in guards if "output" in guard.on and guard.most_tokens is None
        ]
        if originals:
            of_answer.append(_restoring(originals))
        if of_answer:
            self.sink = self._sink(of_answer, subject._replace(on="output", input_tokens=0))

    def blocked(self, error: GuardBlockedError) -> None:
        """Record a guardrail that blocked an answer."""
        if error.acted not in self._acted:
            self._acted.append(error.acted)

    def entry(self, entry: Entry) -> Entry:
        """The ledger line with what guardrails did."""
        acted = _told(self._acted)
        return msgspec.structs.replace(entry, guardrails=acted, prompt=self.incoming.prompt)

    def _sink(self, guards: Iterable[Guard], subject: Subject) -> Sink:
        incoming = self.incoming
        prompt = incoming.prompt
        stub = ChatCall(
            dialect=incoming.side.name, model=incoming.model, messages=(), stream=incoming.stream
        )

        def fails(error: GuardBlockedError) -> bytes:
            return incoming.side.stream_writer(stub).write(ReplyFailure(failure_of(error)))

        bare = self.sink if not isinstance(self.sink, GuardedSink) else self.sink.bare
        return GuardedSink(
            bare,
            tuple(guards),
            subject,
            self._acted,
            stream=incoming.stream,
            fails=fails,
            keep_alive=incoming.side.stream_writer(stub).keep_alive() if incoming.stream else b"",
            clock_ns=self._clock_ns,
            more_headers=[(PROMPT_HEADER, prompt)] if prompt else (),
        )


class Screened(NamedTuple):
    """A request for embeddings or a token count after its guardrails."""

    body: JsonObject
    acted: tuple[str, ...] = ()
    """What guardrails did, for the ledger."""
    refusal: RequestError | None = None
    """Why it is refused; None if it is not."""


async def screened(
    guardrails: Guardrails | None,
    router: Router,
    dialect: str,
    body: JsonObject,
    models: Iterable[str],
    caller: Caller | None,
    request_id: str,
) -> Screened:
    """Check a request whose answer needs no checks; `dialect` is that of its texts."""
    try:
        guards = (guardrails or _NO_GUARDRAILS).of(
            _may_answer(models, router),
            () if caller is None else caller.guardrails,
            asked_names(body.decoded(FIELD)),
        )
        model = body.text("model") or ""
        tokens = estimate(body)
        subject = _subject(request_id, dialect, model, tokens, caller)
        if FIELD in body:
            body = JsonObject.read(body.edited({FIELD: None}))
        looking = [
            guard for guard in guards if "input" in guard.on and _has_to_look(guard, dialect)
        ]
        found = await looked_at(looking, subject, body)
    except GuardBlockedError as error:
        return Screened(body, _told([error.acted]), error)
    except RequestError as error:
        return Screened(body, (), error)
    return Screened(found.body, _told(found.acted))


def _has_to_look(guard: Guard, dialect: str) -> bool:
    """Whether a guardrail applies: embeddings have no tools, and no model writes an answer."""
    return guard.most_tokens is None and (guard.tools is None or dialect != EMBEDDINGS)


def _subject(
    request_id: str, dialect: str, model: str, input_tokens: int, caller: Caller | None
) -> Subject:
    return Subject(
        on="input",
        passages=(),
        request_id=request_id,
        dialect=dialect,
        model=model,
        input_tokens=input_tokens,
        key="" if caller is None else caller.key_id,
        team="" if caller is None else caller.team or "",
        organisation="" if caller is None else caller.organisation or "",
        user="" if caller is None else caller.user or "",
    )


def _told(acted: Iterable[Acted]) -> tuple[str, ...]:
    named = (action for action in acted if action.guard != NAMELESS)
    return tuple(dict.fromkeys(f"{action.guard}={action.action}" for action in named))


def _restoring(originals: Originals) -> Guard:
    return Guard(name=NAMELESS, on=frozenset(("output",)), action="redact", finder=originals)


def _may_answer(models: Iterable[str], router: Router) -> list[str]:
    """Every configured model that the request may reach, by fallbacks too."""
    found: dict[str, None] = {}
    open_names = list(models)
    while open_names:
        route = router.route(open_names.pop())
        if route is None or route.name in found:
            continue
        found[route.name] = None
        open_names += route.stands_for
        open_names += (*route.fallbacks, *route.context_fallbacks, *route.policy_fallbacks)
    return list(found)
