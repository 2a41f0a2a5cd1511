"""A client's request as each provider needs it: passed through with a few edits, or translated.

A provider of the client's dialect gets the body as it came: only the fields named in `EDITS`
change, and no other byte does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.gateway.held_bodies import key_of
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.parameter_support import TRANSLATION, UntranslatableError
from headrace.gateway.serving.prompt_salt import salt_edits
from headrace.gateway.targets.target import Target
from headrace.http.large_bodies import LargeBodies
from headrace.protocol.dialects.anthropic.request.billing import call_for
from headrace.protocol.dialects.openai_responses.request.state import needs_state, without_state
from headrace.protocol.field_path import has_field
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import ReplySide
from headrace.protocol.neutral.losses import NO_LOSSES, Losses, losses

_SERVICE_TIER = "service_tier"
_BACKGROUND = "background"
# Fields meant for the gateway: a provider would refuse them.
_OURS = ("provider", "models", "route", "cache")


_NEUTRAL_PLACE = re.compile(r"(messages|instructions|tools)\[\d+\](?:\.\w+\[\d+\])*")


class Ready(NamedTuple):
    """A request ready to be sent to one provider."""

    path: str
    """Comes after the base URL's."""
    headers: tuple[tuple[str, str], ...]
    body: bytes
    losses: Losses
    """Parameters that the provider does not support."""
    passed_on: bool
    """Whether the answer can be passed through as well."""
    hides_usage: bool
    """Whether the client did not request usage."""
    replies: ReplySide | None = None
    """Reads the answer instead of the provider's own side."""
    service_tier: str | None = None
    """The tier requested of the provider; None without one."""
    goes_on: bool = False
    """Whether the provider goes on writing after its reply."""


class Edited(NamedTuple):
    """A body with edits, and whether the usage they request is hidden from the client."""

    body: bytes
    hides_usage: bool = False


Edits = Mapping[str, bytes | None]


def _openai_chat(body: JsonObject, model: str, more: Edits) -> Edited:
    changes = _changes(body, model, more)
    hides = False
    if body.decoded("stream") is True:
        options = body.decoded("stream_options")
        stream_options: dict[str, object] = options if isinstance(options, dict) else {}
        if stream_options.get("include_usage") is not True:
            hides = True
            changes["stream_options"] = msgspec.json.encode(
                {**stream_options, "include_usage": True}
            )
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
    """The field of a request in `dialect` that no chat API has, and why; None if there is none."""
    if dialect == "openai-completions":
        from headrace.protocol.dialects.openai_completions.beyond_chat import beyond_chat

        return beyond_chat(call)
    if dialect == "ollama-generate":
        from headrace.protocol.dialects.ollama.request.read_generate import (
            beyond_chat as beyond_ollama,
        )

        return beyond_ollama(call)
    return None


def without_ours(body: JsonObject, model: str | None = None, *others: str) -> bytes:
    """A body without the fields meant for the gateway.

    `model` replaces the client's; None leaves it. `others` are removed as well.
    """
    changes: dict[str, bytes | None] = {name: None for name in (*_OURS, *others) if name in body}
    if model is not None:
        changes["model"] = msgspec.json.encode(model)
    return body.edited(changes) if changes else body.body


class Prepared:
    """A client's request in each form that a target needs; each is made on first use."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._call: ChatCall | None = None

    @property
    def call(self) -> ChatCall:
        """The request in neutral form. Raises RequestError if it is invalid."""
        if self._call is None:
            incoming = self._incoming
            raw = without_ours(incoming.body)
            self._call = incoming.side.read_call(raw, incoming.path, incoming.headers)
        return self._call

    def call_at(self, target: Target) -> ChatCall:
        """The request as it is written for a provider of another dialect. Raises RequestError if
        it is invalid."""
        return call_for(self.call, target.provider.side.name)

    @property
    def stub(self) -> ChatCall:
        """Enough of the request to read an answer, without its messages."""
        if self._call is not None:
            return self._call
        incoming = self._incoming
        return ChatCall(
            dialect=incoming.side.name, model=incoming.model, messages=(), stream=incoming.stream
        )

    def is_large(self, large_bodies: LargeBodies) -> bool:
        """Whether the request is to be made in `make`, as its body is large."""
        return len(self._incoming.body.body) >= large_bodies.least_bytes

    async def make(self, target: Target, large_bodies: LargeBodies) -> Ready | RequestError:
        """What `for_target` returns or raises, when it is the turn of its key."""

        def work() -> Ready | RequestError:
            try:
                return self.for_target(target)
            except RequestError as error:
                return error

        incoming = self._incoming
        size = len(incoming.body.body)
        return await large_bodies.result(key_of(incoming.caller), size, work)

    def for_target(self, target: Target) -> Ready:
        """The request for one target. Raises UntranslatableError if the target cannot take it at
        all, RequestError if it is invalid."""
        ready = self._ready(target)
        if not target.pass_priority:
            return ready
        # The key's priority, whatever the body says; otherwise everybody would claim to be first.
        caller = self._incoming.caller
        priority = b"%d" % (0 if caller is None else caller.priority)
        return ready._replace(body=JsonObject.read(ready.body).edited({"priority": priority}))

    def _ready(self, target: Target) -> Ready:
        provider, incoming = target.provider, self._incoming
        passing = provider.passes.get(incoming.side.name)
        if passing is not None:
            edits = {**passing.edits, **salt_edits(provider, incoming.caller, incoming.body)}
            edited = EDITS[incoming.side.name](incoming.body, target.model, edits)
            headers = (("content-type", "application/json"), *forwarded(incoming))
            return Ready(
                passing.path(target.model, incoming.stream),
                headers,
                edited.body,
                NO_LOSSES,
                True,
                edited.hides_usage,
                passing.replies,
                asked_service_tier(incoming.body),
                _goes_on(incoming),
            )
        call = self.call_at(target)
        if kept := needs_state(call):
            raise UntranslatableError(
                f"{kept[0]}: {without_state(kept[0])}",
                param=kept[0],
                code=TRANSLATION,
            )
        if unsaid := _beyond_chat(incoming.side.name, call):
            raise UntranslatableError(unsaid[1], param=unsaid[0], code=TRANSLATION)
        try:
            written = provider.side.write_call(call, target.model)
        except RequestError as error:
            raise _untranslatable(error, incoming) from None
        body = written.body
        if provider.prompt_cache_field is not None and incoming.caller is not None:
            fields = JsonObject.read(body)
            body = fields.edited(salt_edits(provider, incoming.caller, fields))
        return Ready(
            written.path,
            tuple(written.headers.items()),
            body,
            losses(
                call,
                written.dropped,
                incoming.side.field_paths,
                lambda path: has_field(incoming.body, path),
            ),
            False,
            False,
            service_tier=None if _SERVICE_TIER in written.dropped else call.service_tier,
        )


def _untranslatable(error: RequestError, incoming: Incoming) -> UntranslatableError:
    """The error of a provider's dialect; it names the list in the client's body instead of a place
    in the neutral call, whose numbers differ from the client's."""
    paths = incoming.side.field_paths

    def place(found: re.Match[str]) -> str:
        known = paths.get(found[1], (found[1],))
        return next((path for path in known if has_field(incoming.body, path)), known[0])

    message = _NEUTRAL_PLACE.sub(place, str(error))
    param = None if error.param is None else _NEUTRAL_PLACE.sub(place, error.param)
    return UntranslatableError(message, param=param, code=error.code)


def asked_service_tier(body: JsonObject) -> str | None:
    """The requested service tier; None if there is none, or it is not text."""
    tier = body.decoded(_SERVICE_TIER) if _SERVICE_TIER in body else None
    return tier if isinstance(tier, str) else None


def _goes_on(incoming: Incoming) -> bool:
    """Whether the reply only confirms that work has begun (OpenAI's `background`)."""
    if incoming.side.name != "openai-responses" or _BACKGROUND not in incoming.body:
        return False
    return incoming.body.decoded(_BACKGROUND) is True


# Client headers that mean something to a provider of the same dialect.
_FORWARDED = {"anthropic": ("anthropic-beta", "anthropic-version")}


def forwarded(incoming: Incoming) -> tuple[tuple[str, str], ...]:
    """The client's headers that are passed on to a provider of its dialect."""
    return forwarded_headers(incoming.side.name, incoming.headers)


def forwarded_headers(dialect: str, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """As `forwarded`, by the dialect's name."""
    names = _FORWARDED.get(dialect, ())
    return tuple((name, headers[name]) for name in names if name in headers)
