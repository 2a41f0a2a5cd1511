"""A client's request as each provider wants it: passed on with a few edits, or translated.

A provider that speaks the client's dialect gets the body as it came: only the fields named in
`EDITS` change, and no other byte does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.targets.target import Target
from headrace.protocol.dialects.openai_responses.state import needs_state
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import ReplySide

_SERVICE_TIER = "service_tier"
_BACKGROUND = "background"
# Words to the gateway: a provider would refuse them.
_OURS = ("provider", "models", "route", "cache")


class Ready(NamedTuple):
    """path: after the base URL's. dropped: parameters that the provider cannot be told. passed_on:
    whether the answer can be passed on too. hides_usage: whether its usage was not asked for.
    replies: how the answer is read, where the provider's own side does not. service_tier: what the
    provider is asked for, None if nothing. goes_on: whether it writes on where nobody waits."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    dropped: tuple[str, ...]
    passed_on: bool
    hides_usage: bool
    replies: ReplySide | None = None
    service_tier: str | None = None
    goes_on: bool = False


class Edited(NamedTuple):
    body: bytes
    hides_usage: bool = False


Edits = Mapping[str, bytes | None]


def _openai_chat(body: JsonObject, model: str, more: Edits) -> Edited:
    changes = _changes(body, model, more)
    hides = False
    if body.decoded("stream") is True:
        options = body.decoded("stream_options")
        told: dict[str, object] = options if isinstance(options, dict) else {}
        if told.get("include_usage") is not True:
            hides = True
            changes["stream_options"] = msgspec.json.encode({**told, "include_usage": True})
    return Edited(body.edited(changes), hides)


def _model_alone(body: JsonObject, model: str, more: Edits) -> Edited:
    return Edited(body.edited(_changes(body, model, more)))


def _changes(body: JsonObject, model: str, more: Edits) -> dict[str, bytes | None]:
    changes: dict[str, bytes | None] = {"model": msgspec.json.encode(model)}
    changes |= {name: None for name in _OURS if name in body}
    return {**changes, **more}


EDITS: dict[str, Callable[[JsonObject, str, Edits], Edited]] = {
    "openai-chat": _openai_chat,
    "openai-completions": _openai_chat,
    "openai-responses": _model_alone,
    "anthropic": _model_alone,
    "ollama": _model_alone,
    "ollama-generate": _model_alone,
}


def _beyond_chat(dialect: str, call: ChatCall) -> tuple[str, str] | None:
    """What of a request no chat can be told: the field, and why. dialect: of the client."""
    if dialect == "openai-completions":
        from headrace.protocol.dialects.openai_completions.beyond_chat import beyond_chat

        return beyond_chat(call)
    if dialect == "ollama-generate":
        from headrace.protocol.dialects.ollama.read_generate import beyond_chat as beyond_ollama

        return beyond_ollama(call)
    return None


def without_ours(body: JsonObject, model: str | None = None, *others: str) -> bytes:
    """A body without the words to the gateway. model: in place of the client's; None leaves it.
    others: fields that go as well."""
    changes: dict[str, bytes | None] = {name: None for name in (*_OURS, *others) if name in body}
    if model is not None:
        changes["model"] = msgspec.json.encode(model)
    return body.edited(changes) if changes else body.body


class Prepared:
    """Each form is made when it is first wanted."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._call: ChatCall | None = None

    @property
    def call(self) -> ChatCall:
        """The request in neutral form; raises RequestError for one that is at fault."""
        if self._call is None:
            incoming = self._incoming
            raw = without_ours(incoming.body)
            self._call = incoming.side.read_call(raw, incoming.path, incoming.headers)
        return self._call

    @property
    def stub(self) -> ChatCall:
        """Enough of it to read an answer by, without looking at the messages."""
        if self._call is not None:
            return self._call
        incoming = self._incoming
        return ChatCall(
            dialect=incoming.side.name, model=incoming.model, messages=(), stream=incoming.stream
        )

    def for_target(self, target: Target) -> Ready:
        """Raises RequestError for what the target cannot be told at all."""
        ready = self._ready(target)
        if not target.pass_priority:
            return ready
        # The key's, whatever the body says: or everybody would go first.
        caller = self._incoming.caller
        priority = b"%d" % (0 if caller is None else caller.priority)
        return ready._replace(body=JsonObject.read(ready.body).edited({"priority": priority}))

    def _ready(self, target: Target) -> Ready:
        provider, incoming = target.provider, self._incoming
        passing = provider.passes.get(incoming.side.name)
        if passing is not None:
            edited = EDITS[incoming.side.name](incoming.body, target.model, passing.edits)
            headers = (("content-type", "application/json"), *forwarded(incoming))
            return Ready(
                passing.path(target.model, incoming.stream),
                headers,
                edited.body,
                (),
                True,
                edited.hides_usage,
                passing.replies,
                asked_service_tier(incoming.body),
                _goes_on(incoming),
            )
        call = self.call
        if kept := needs_state(call):
            raise RequestError(
                f"{kept[0]}: it keeps no conversations; send all of this one as input",
                param=kept[0],
                code="translation",
            )
        if unsaid := _beyond_chat(incoming.side.name, call):
            raise RequestError(unsaid[1], param=unsaid[0], code="translation")
        written = provider.side.write_call(call, target.model)
        return Ready(
            written.path,
            tuple(written.headers.items()),
            written.body,
            written.dropped,
            False,
            False,
            service_tier=None if _SERVICE_TIER in written.dropped else call.service_tier,
        )


def asked_service_tier(body: JsonObject) -> str | None:
    """What a client asks for; None if nothing, or no text."""
    tier = body.decoded(_SERVICE_TIER) if _SERVICE_TIER in body else None
    return tier if isinstance(tier, str) else None


def _goes_on(incoming: Incoming) -> bool:
    """Whether its reply only tells that it was taken on (OpenAI's `background`)."""
    if incoming.side.name != "openai-responses" or _BACKGROUND not in incoming.body:
        return False
    return incoming.body.decoded(_BACKGROUND) is True


# What of a client's headers means something to the provider of the same dialect.
_FORWARDED = {"anthropic": ("anthropic-beta", "anthropic-version")}


def forwarded(incoming: Incoming) -> tuple[tuple[str, str], ...]:
    """Of a client's headers, those that go on to a provider of its dialect."""
    return forwarded_headers(incoming.side.name, incoming.headers)


def forwarded_headers(dialect: str, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The same of a dialect's name."""
    names = _FORWARDED.get(dialect, ())
    return tuple((name, headers[name]) for name in names if name in headers)
