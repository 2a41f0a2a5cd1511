"""A request as a stage receives it: not streamed, with log probabilities where available."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import Prepared, Ready
from headrace.gateway.targets.target import Target
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Text

_RESPONSES_LOGPROBS = "message.output_text.logprobs"


class StagePrepared(Prepared):
    """The request of `incoming` without streaming.

    `logprobs` is the number of alternatives to request for each token, 0 for no log probabilities;
    a larger number that the client requested stands.
    """

    def __init__(self, incoming: Incoming, logprobs: int = 0) -> None:
        whole = incoming
        if incoming.stream:
            changes: dict[str, bytes | None] = {"stream": b"false"}
            if "stream_options" in incoming.body:
                changes["stream_options"] = None
            body = JsonObject.read(incoming.body.edited(changes))
            whole = dataclasses.replace(incoming, body=body, stream=False)
        super().__init__(whole)
        self._sure = _Surer(whole, logprobs) if logprobs else None

    def for_target(self, target: Target) -> Ready:
        """See Prepared. Targets that cannot return log probabilities are not asked for them."""
        if self._sure is not None and tells_logprobs(target):
            return self._sure.for_target(target)
        return super().for_target(target)


class _Surer(Prepared):
    """The request of `incoming` with log probabilities."""

    def __init__(self, incoming: Incoming, most: int) -> None:
        changes = _changes(incoming, most)
        self._most = most
        if changes:
            body = JsonObject.read(incoming.body.edited(changes))
            incoming = dataclasses.replace(incoming, body=body)
        super().__init__(incoming)

    @property
    def call(self) -> ChatCall:
        """See Prepared."""
        call = super().call
        most = max(self._most, call.top_logprobs or 0)
        return msgspec.structs.replace(call, logprobs=True, top_logprobs=most)


def _changes(incoming: Incoming, most: int) -> dict[str, bytes | None]:
    """Edits of the body that request them; none if the dialect cannot."""
    body, name = incoming.body, incoming.side.name
    given = body.decoded("top_logprobs")
    wanted = max(most, given) if isinstance(given, int) else most
    edits: dict[str, bytes | None] = {"top_logprobs": msgspec.json.encode(wanted)}
    if name in ("openai-chat", "ollama"):
        return {"logprobs": b"true", **edits}
    if name == "openai-responses":
        include: Any = body.decoded("include")
        listed = include if isinstance(include, list) else []
        if _RESPONSES_LOGPROBS not in listed:
            listed = [*listed, _RESPONSES_LOGPROBS]
        return {"include": msgspec.json.encode(listed), **edits}
    return {}


def tells_logprobs(target: Target) -> bool:
    """Whether its API has a field for them; whether it honours the field is another matter."""
    probe = ChatCall(
        dialect="",
        model=target.model,
        messages=(Message(role="user", parts=(Text(text="Hi"),)),),
        logprobs=True,
        top_logprobs=1,
    )
    try:
        dropped = target.provider.side.write_call(probe, target.model).dropped
    except RequestError:
        return False
    return "logprobs" not in dropped and "top_logprobs" not in dropped


def hidden(wanted_by: ChatCall | None, most: int) -> bool:
    """Whether log probabilities the gateway requested must be hidden from the client."""
    return most > 0 and not (wanted_by is not None and wanted_by.logprobs)
