"""A client's request as each provider wants it: passed on with a few edits, or translated.

A provider that speaks the client's dialect gets the body as it came: only the fields named in
`EDITS` change, and no other byte does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.targets.target import Target
from headrace.protocol.dialects.openai_responses.state import needs_state
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall

# Words to the gateway: a provider would refuse them.
_OURS = ("provider", "models", "route", "cache")


class Ready(NamedTuple):
    """path: after the base URL's. dropped: parameters that the provider cannot be told. passed_on:
    whether the answer can be passed on too. hides_usage: whether its usage was not asked for."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    dropped: tuple[str, ...]
    passed_on: bool
    hides_usage: bool


class Edited(NamedTuple):
    body: bytes
    hides_usage: bool = False


def _openai_chat(body: JsonObject, model: str) -> Edited:
    changes: dict[str, bytes | None] = {"model": msgspec.json.encode(model)}
    changes |= {name: None for name in _OURS if name in body}
    hides = False
    if body.decoded("stream") is True:
        options = body.decoded("stream_options")
        told: dict[str, object] = options if isinstance(options, dict) else {}
        if told.get("include_usage") is not True:
            hides = True
            changes["stream_options"] = msgspec.json.encode({**told, "include_usage": True})
    return Edited(body.edited(changes), hides)


def _model_alone(body: JsonObject, model: str) -> Edited:
    changes: dict[str, bytes | None] = {"model": msgspec.json.encode(model)}
    changes |= {name: None for name in _OURS if name in body}
    return Edited(body.edited(changes))


EDITS: dict[str, Callable[[JsonObject, str], Edited]] = {
    "openai-chat": _openai_chat,
    "openai-responses": _model_alone,
    "anthropic": _model_alone,
    "ollama": _model_alone,
}


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
            body = incoming.body
            ours: dict[str, bytes | None] = {name: None for name in _OURS if name in body}
            raw = body.edited(ours) if ours else body.body
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
        provider, incoming = target.provider, self._incoming
        if provider.client_dialect == incoming.side.name and provider.passed_path is not None:
            edited = EDITS[incoming.side.name](incoming.body, target.model)
            headers = (("content-type", "application/json"), *forwarded(incoming))
            return Ready(
                provider.passed_path(target.model),
                headers,
                edited.body,
                (),
                True,
                edited.hides_usage,
            )
        call = self.call
        if kept := needs_state(call):
            raise RequestError(
                f"{kept[0]}: it keeps no conversations; send all of this one as input",
                param=kept[0],
                code="translation",
            )
        written = provider.side.write_call(call, target.model)
        return Ready(
            written.path,
            tuple(written.headers.items()),
            written.body,
            written.dropped,
            False,
            False,
        )


# What of a client's headers means something to the provider of the same dialect.
_FORWARDED = {"anthropic": ("anthropic-beta", "anthropic-version")}


def forwarded(incoming: Incoming) -> tuple[tuple[str, str], ...]:
    """Of a client's headers, those that go on to a provider of its dialect."""
    names = _FORWARDED.get(incoming.side.name, ())
    return tuple((name, incoming.headers[name]) for name in names if name in incoming.headers)
